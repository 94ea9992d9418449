// One step by stream: the prediction above what was measured, the blocks above both, and under the events the chain that
// the step's length comes from.
function makeLanes(data) {
  const sources = sourcesOf(data), lanes = [];
  for (const [source, timeline] of sources)
    timeline.streams.forEach((stream, i) => {
      let lane = lanes.find(l => l.role === stream.role);
      if (!lane) lanes.push(lane = {role: stream.role, rows: []});
      const list = eventsOf(timeline)[i], main = source === 'measured' || sources.length === 1;
      if (list.events.length) lane.rows.push({source, timeline, stream, ...list, height: main ? 24 : 15, borders: main && stream.role === 'compute' ? bordersOf(timeline, list) : null});
    });
  return lanes.filter(lane => lane.rows.length);
}

// Where the compute stream goes from one block to the next: [{block, from, to}].
function bordersOf(timeline, {events}) {
  const runs = [];
  for (const event of events) {
    const last = runs[runs.length - 1];
    if (last && last.block === event[EVENT.block]) last.to = endOf(event);
    else runs.push({block: event[EVENT.block], from: event[EVENT.start], to: endOf(event)});
  }
  return runs.map(run => ({...run, name: timeline.blocks[run.block] || ''}));
}
function paintBorders(row, x, y, bottom) {
  const parts = [];
  let drawn = -100;
  for (const {name, from, to} of row.borders) {
    if (to < stepView.from || from > stepView.to) continue;
    const left = Math.max(x.low, x(from)), right = Math.min(x.high, x(to));
    if (left - drawn >= 5 && from > stepView.from) parts.push(svg('line', {class: 'border', x1: px(left), x2: px(left), y1: y, y2: bottom})), drawn = left;
    const short = name.replace(/^layer /, '');
    const text = right - left > 6.4 * name.length + 4 ? name : right - left > 6.4 * short.length + 3 ? short : '';
    if (text) parts.push(svg('text', {class: 'small', x: (left + right) / 2, y: y + 9, 'text-anchor': 'middle'}, text));
  }
  return parts;
}

function paintRow(row, x, y) {
  const shapes = makeShapes(), chain = [], labels = [], {timeline} = row;
  let chainEnd = -1;
  eachShown(row, stepView, event => {
    const from = Math.max(x.low, x(event[EVENT.start])), to = Math.min(x.high, x(endOf(event))), width = Math.max(to - from, 1);
    if (event[EVENT.chained] && to > chainEnd + 0.5) chain.push(`M${px(Math.max(from, chainEnd))} ${y + row.height + 1}H${px(Math.max(to, from + 1))}v3H${px(Math.max(from, chainEnd))}Z`), chainEnd = to;
    shapes.add(eventColor(timeline, event), from, to, y, row.height);
    const text = timeline.names[event[EVENT.name]];
    if (row.height > 20 && width > 7 * text.length + 8) labels.push(svg('text', {class: 'inside', x: from + 5, y: y + row.height / 2 + 4}, text));
    else if (row.height > 20 && width > 60) labels.push(svg('text', {class: 'inside', x: from + 5, y: y + row.height / 2 + 4}, text.slice(0, Math.floor((width - 16) / 7)) + '…'));
  });
  return [shapes.paths(row.source === 'predicted' && row.height < 20 ? 0.62 : 1), svg('path', {class: 'chain', d: chain.join('')}), labels];
}

function paintTimeline(chart, plot, width) {
  const left = gutter(width), right = width - 4, several = chart.lanes.some(lane => lane.rows.length > 1), parts = [];
  const x = Object.assign(linear(stepView.from, stepView.to, left, right), {low: left, high: right});
  const share = row => percent(row.stream.busy_s / row.timeline.step_s);
  let y = 4;
  for (const lane of chart.lanes) {
    const [last, ...others] = [...lane.rows].reverse(), busy = `${share(last)} busy` + others.map(row => `, ${row.source} ${share(row)}`).join(''); // short, for a phone
    parts.push(svg('text', {class: 'head', x: left, y: y + 11}, capital(roleName(lane.role)), svg('tspan', {class: 'beside-head', dx: 10}, busy)));
    y += 17;
    for (const row of lane.rows) {
      if (row.borders) {
        const bottom = y + 12 + row.height;
        parts.push(svg('rect', {class: 'lane', x: left, y: y + 12, width: right - left, height: row.height}), paintRow(row, x, y + 12), paintBorders(row, x, y, bottom));
        y += 12;
      } else parts.push(svg('rect', {class: 'lane', x: left, y, width: right - left, height: row.height}), paintRow(row, x, y));
      row.y = y;
      if (several) parts.push(svg('text', {x: left - 6, y: y + row.height / 2 + 4, 'text-anchor': 'end'}, row.source));
      y += row.height + 6;
    }
    y += 8;
  }
  const title = timelineTitle(chart), rows = chart.lanes.flatMap(lane => lane.rows);
  replace(plot, svg('svg', {viewBox: `0 0 ${width} ${y + 18}`, role: 'img', 'aria-label': title}, timeAxis(x, left, width, y), parts,
    markPicked(chart, x, (event, timeline) => rows.find(row => row.timeline === timeline && row.events[0][EVENT.stream] === event[EVENT.stream])), cursorLine(4, y)));
  Object.assign(plot, {x, scale: width});
}
const timelineTitle = chart => 'Timeline of one step: ' + chart.lanes.map(lane => lane.rows.map(row => `${roleName(lane.role)} ${row.source} ${percent(row.stream.busy_s / row.timeline.step_s)} busy`).join(', ')).join('; ');

function findEvent(chart, plot, clientX, clientY) {
  const box = plot.getBoundingClientRect(), zoom = plot.scale / box.width, y = (clientY - box.top) * zoom, us = plot.x.invert((clientX - box.left) * zoom);
  const row = chart.lanes.flatMap(lane => lane.rows).find(r => y >= r.y - 3 && y <= r.y + r.height + 4);
  if (!row || us < stepView.from || us > stepView.to) return null;
  const event = nearest(row, us, 4 * (stepView.to - stepView.from) / plot.scale);
  return event ? {row, event} : null;
}

// Shift with the arrows goes from event to event, up and down from row to row; W goes to what it waited for.
function timelineKeys(chart, event) {
  const rows = chart.lanes.flatMap(lane => lane.rows), by = {ArrowLeft: -1, ArrowRight: 1}[event.key], down = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (event.key === 'Escape') { pickEvent(chart, null); return; }
  if (event.key === 'w' && chart.picked) { followCause(chart); return; }
  if (!event.shiftKey || !(by || down)) return;
  event.preventDefault();
  const rowOf = picked => rows.find(row => row.timeline === picked.row.timeline && row.events.includes(picked.event));
  if (!chart.picked) { const i = Math.min(rows[0].events.length - 1, above(rows[0].starts, stepView.from)); pickEvent(chart, {row: rows[0], event: rows[0].events[i]}); return; }
  const at = rowOf(chart.picked), row = down ? rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(at) + down))] : at;
  const i = down ? above(row.starts, chart.picked.event[EVENT.start]) - 1 : row.events.indexOf(chart.picked.event) + by;
  pickEvent(chart, {row, event: row.events[Math.max(0, Math.min(row.events.length - 1, i))]});
}

function streamTable(data) {
  const sources = sourcesOf(data), roles = [...new Set(sources.flatMap(([, t]) => t.streams.map(s => s.role)))];
  const cells = role => sources.flatMap(([, t]) => { const stream = t.streams.find(s => s.role === role) || {}; return [seconds(stream.busy_s), seconds(stream.waiting_s)]; });
  return html('details', {}, html('summary', {}, 'Streams as a table'), table(['Stream', ...sources.flatMap(([name]) => ['#Busy, ' + name, '#Waiting, ' + name])],
    roles.map(role => [capital(roleName(role)), ...cells(role)]).concat([Object.assign(['The step', ...sources.flatMap(([, t]) => [seconds(t.step_s), ''])], {chosen: true})])));
}

// What this rank communicates with others in a step, predicted and measured.
function collectiveTable(data) {
  const sources = sourcesOf(data).filter(([, t]) => t.communication);
  if (!sources.length) return null;
  const row = (title, cell) => [title, ...sources.map(([, t]) => cell(t.communication))];
  return html('details', {}, html('summary', {}, 'Between ranks'), table(['One rank, one step', ...sources.map(([name]) => '#' + capital(name))], [
    row('Operations between ranks', c => seconds(c.seconds)), row('Overlapped with compute', c => percent(c.seconds ? c.hidden_s / c.seconds : 0)),
    row('Sent to ranks of its node', c => bytes(c.in_node_bytes)), row('Sent to other nodes', c => bytes(c.across_bytes)), row('Read in place', c => bytes(c.read_bytes))]));
}
