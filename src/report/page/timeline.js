// One step by stream: the prediction above what was measured, and under the events the chain that the step's length
// comes from.
const EVENT = {stream: 0, name: 1, block: 2, section: 3, grain: 4, phase: 5, start: 6, length: 7, bytes: 8, count: 9, chained: 10};
const PHASE_COLORS = {forward: 'forward', backward: 'backward', update: 'update'};
const phaseColor = name => PHASE_COLORS[Object.keys(PHASE_COLORS).find(key => String(name).includes(key))] || 'other';

// A row of the drawing: the events of one stream of one timeline, by their starts.
function makeRows(data) {
  const sources = [['predicted', data.predicted], ['measured', data.measured]].filter(([, timeline]) => timeline), lanes = [];
  for (const [source, timeline] of sources)
    timeline.streams.forEach((stream, i) => {
      let lane = lanes.find(l => l.role === stream.role);
      if (!lane) lanes.push(lane = {role: stream.role, rows: []});
      const events = timeline.events.filter(event => event[EVENT.stream] === i);
      if (events.length) lane.rows.push({source, timeline, stream, events, starts: events.map(event => event[EVENT.start]), height: source === 'measured' || sources.length === 1 ? 24 : 15});
    });
  return lanes.filter(lane => lane.rows.length);
}

// Rectangles of one colour as one path. What is narrower than a pixel is drawn one pixel wide, once.
function paintRow(row, x, y) {
  const shapes = {}, chain = [], labels = [], {events, starts, timeline} = row;
  let first = above(starts, view.from), lastPixel = {}, chainEnd = -1;
  while (first > 0 && events[first - 1][EVENT.start] + events[first - 1][EVENT.length] > view.from) first--;
  for (let i = first; i < events.length && starts[i] < view.to; i++) {
    const event = events[i], from = Math.max(x.low, x(starts[i])), to = Math.min(x.high, x(starts[i] + event[EVENT.length]));
    const name = timeline.phases[event[EVENT.phase]] || '', fillName = phaseColor(name), width = Math.max(to - from, 1), pixel = Math.floor(from);
    if (event[EVENT.chained] && to > chainEnd + 0.5) chain.push(`M${px(Math.max(from, chainEnd))} ${y + row.height + 1}H${px(Math.max(to, from + 1))}v3H${px(Math.max(from, chainEnd))}Z`), chainEnd = to;
    if (width <= 1 && lastPixel[fillName] === pixel) continue;
    if (width <= 1) lastPixel[fillName] = pixel;
    const gap = width > 3 ? 0.6 : 0;
    (shapes[fillName] = shapes[fillName] || []).push(`M${px(from)} ${y}h${px(width - gap)}v${row.height}h${px(gap - width)}Z`);
    const text = timeline.names[event[EVENT.name]];
    if (row.height > 20 && width > 7 * text.length + 8) labels.push(svg('text', {class: 'inside', x: from + 5, y: y + row.height / 2 + 4}, text));
    else if (row.height > 20 && width > 60) labels.push(svg('text', {class: 'inside', x: from + 5, y: y + row.height / 2 + 4}, text.slice(0, Math.floor((width - 16) / 7)) + '…'));
  }
  return [Object.entries(shapes).map(([name, d]) => svg('path', {fill: color(name), 'fill-opacity': row.source === 'predicted' ? 0.62 : 1, d: d.join('')})),
    svg('path', {class: 'chain', d: chain.join('')}), labels];
}

function paintTimeline(chart, width) {
  const several = chart.lanes.some(lane => lane.rows.length > 1), left = several ? (width < 500 ? 66 : 74) : 4, right = width - 4;
  const x = Object.assign(linear(view.from, view.to, left, right), {low: left, high: right}), parts = [];
  let y = 4;
  for (const lane of chart.lanes) {
    const share = row => percent(row.stream.busy_s / row.timeline.step_s), busy = width < 500 ? 'busy ' + list(lane.rows.map(share)) : lane.rows.map(row => `${row.source} ${share(row)} busy`).join(', ');
    parts.push(svg('text', {class: 'head', x: 0, y: y + 12}, capital(roleName(lane.role)), svg('tspan', {style: 'font-weight:400;font-size:11.5px;fill:var(--soft)', dx: 10}, busy)));
    y += 19;
    for (const row of lane.rows) {
      row.y = y;
      parts.push(svg('rect', {class: 'lane', x: left, y, width: right - left, height: row.height}));
      if (several) parts.push(svg('text', {x: left - 6, y: y + row.height / 2 + 4, 'text-anchor': 'end'}, row.source));
      parts.push(paintRow(row, x, y));
      y += row.height + 6;
    }
    y += 8;
  }
  const picked = chart.picked && pickedBox(chart, x), title = timelineTitle(chart);
  replace(chart.plot, svg('svg', {viewBox: `0 0 ${width} ${y + 22}`, role: 'img', 'aria-label': title}, timeAxis(x, left, width, y), parts,
    picked && picked.width >= 0 ? svg('rect', {class: 'picked', ...picked}) : null));
  Object.assign(chart, {x, scale: width});
}
function pickedBox({picked: {row, event}}, x) {
  const from = Math.max(x.low, x(event[EVENT.start])), to = Math.min(x.high, x(event[EVENT.start] + event[EVENT.length]));
  return {x: from - 1, y: row.y - 1, width: to < x.low || from > x.high ? -1 : Math.max(2, to - from + 2), height: row.height + 2};
}
const timelineTitle = chart => 'Timeline of one step: ' + chart.lanes.map(lane => lane.rows.map(row => `${roleName(lane.role)} ${row.source} ${percent(row.stream.busy_s / row.timeline.step_s)} busy`).join(', ')).join('; ');

function describeEvent(row, event) {
  const t = row.timeline, block = t.blocks[event[EVENT.block]], phase = t.phases[event[EVENT.phase]], section = t.sections[event[EVENT.section]], more = event[EVENT.count] - 1;
  const moved = event[EVENT.bytes], rate = moved && event[EVENT.length] ? ` at ${bytes(moved / event[EVENT.length] * 1e6)}/s` : '';
  return [t.names[event[EVENT.name]] + (more > 0 ? ` and ${plural(more, 'shorter event')} beside it` : ''),
    [block, phase, section, more > 0 || event[EVENT.grain] < 0 ? '' : 'grain ' + event[EVENT.grain]].filter(text => text).join(', '),
    `${seconds(event[EVENT.length] / 1e6)}, from ${tickTime(event[EVENT.start], event[EVENT.length] + 1)}` + (moved ? `; ${bytes(moved)}${rate}` : ''),
    `${row.source}, ${roleName(row.stream.role)} stream` + (event[EVENT.chained] ? '; on the chain that binds the step' : '')].filter(text => text);
}

// The event at a place of the drawing, or the nearest within some pixels.
function findEvent(chart, clientX, clientY) {
  const box = chart.plot.getBoundingClientRect(), zoom = chart.scale / box.width, y = (clientY - box.top) * zoom, us = chart.x.invert((clientX - box.left) * zoom);
  const row = chart.lanes.flatMap(lane => lane.rows).find(r => y >= r.y - 3 && y <= r.y + r.height + 4);
  if (!row || us < view.from || us > view.to) return null;
  const i = above(row.starts, us), slack = 4 * (view.to - view.from) / chart.scale, away = event => Math.max(event[EVENT.start] - us, us - event[EVENT.start] - event[EVENT.length], 0);
  const near = row.events.slice(Math.max(0, i - 3), i + 2).map(event => ({event, away: away(event)})).filter(found => found.away <= slack).sort((a, b) => a.away - b.away)[0];
  return near ? {row, event: near.event} : null;
}

function pickEvent(chart, picked) {
  chart.picked = picked;
  chart.line.textContent = picked ? describeEvent(picked.row, picked.event).join(' · ') : chart.hint;
  if (picked) {
    const start = picked.event[EVENT.start], end = start + picked.event[EVENT.length], span = view.to - view.from;
    if (end < view.from || start > view.to) setView(start - span / 2, start + span / 2);
  }
  repaint(chart.plot);
}

// Shift with the arrows goes from event to event, up and down from row to row.
function timelineKeys(chart, event) {
  const rows = chart.lanes.flatMap(lane => lane.rows), by = {ArrowLeft: -1, ArrowRight: 1}[event.key], down = {ArrowUp: -1, ArrowDown: 1}[event.key];
  if (event.key === 'Escape') { pickEvent(chart, null); return; }
  if (!event.shiftKey || !(by || down)) return;
  event.preventDefault();
  if (!chart.picked) { const i = Math.min(rows[0].events.length - 1, above(rows[0].starts, view.from)); pickEvent(chart, {row: rows[0], event: rows[0].events[i]}); return; }
  const at = rows.indexOf(chart.picked.row), row = down ? rows[Math.max(0, Math.min(rows.length - 1, at + down))] : chart.picked.row;
  const i = down ? above(row.starts, chart.picked.event[EVENT.start]) - 1 : row.events.indexOf(chart.picked.event) + by;
  pickEvent(chart, {row, event: row.events[Math.max(0, Math.min(row.events.length - 1, i))]});
}

function showTip(chart, event) {
  const found = chart.plot.classList.contains('held') || event.pointerType === 'touch' ? null : findEvent(chart, event.clientX, event.clientY);
  chart.tip.hidden = !found;
  if (!found) return;
  const box = chart.figure.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  chart.tip.textContent = describeEvent(found.row, found.event).join('\n');
  chart.tip.style.left = Math.max(4, Math.min(x + 14, box.width - chart.tip.offsetWidth - 4)) + 'px';
  chart.tip.style.top = y + 18 + 'px';
}

function streamTable(data) {
  const sources = [['predicted', data.predicted], ['measured', data.measured]].filter(([, t]) => t), roles = [...new Set(sources.flatMap(([, t]) => t.streams.map(s => s.role)))];
  const cells = role => sources.flatMap(([, t]) => { const stream = t.streams.find(s => s.role === role) || {}; return [seconds(stream.busy_s), seconds(stream.waiting_s)]; });
  return html('details', {}, html('summary', {}, 'Streams as a table'), table(['Stream', ...sources.flatMap(([name]) => ['#Busy, ' + name, '#Waiting, ' + name])],
    roles.map(role => [capital(roleName(role)), ...cells(role)]).concat([Object.assign(['The step', ...sources.flatMap(([, t]) => [seconds(t.step_s), ''])], {chosen: true})])));
}

function bindsLine(data) {
  const timeline = data.measured || data.predicted, total = timeline.bounds.reduce((sum, bound) => sum + bound.seconds, 0);
  if (!total) return null;
  return html('p', {class: 'words'}, html('strong', {}, 'What binds: '), list(timeline.bounds.slice(0, 4).map(bound => `${boundName(bound)} ${percent(bound.seconds / timeline.step_s)}`)) + ' of the step. The line under the events marks this chain: what would have to be faster for the step to be shorter.');
}

function makeTimeline(data) {
  const chart = {lanes: makeRows(data), hint: 'Point at an event, tap it, or press Shift with the arrow keys to read it.'};
  const names = [...new Set([data.predicted, data.measured].filter(t => t).flatMap(t => t.phases))];
  chart.plot = html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': 'Timeline; arrows move, plus and minus zoom, 0 shows all, Shift with arrows reads events'});
  chart.tip = html('div', {class: 'tip', hidden: true});
  chart.line = html('p', {class: 'detail-line', role: 'status'}, chart.hint);
  const button = (text, label, act) => { const node = html('button', {type: 'button', 'aria-label': label}, text); node.addEventListener('click', act); return node; };
  const merged = [data.predicted, data.measured].some(t => t && t.events.length < t.recorded);
  chart.figure = html('figure', {class: 'card'}, bindsLine(data),
    html('div', {class: 'tools'}, html('span', {}, 'Drag to move. Pinch, click and turn the wheel, or press + and − to zoom. Memory above follows.'), html('div', {class: 'buttons'}, button('−', 'Zoom out', () => zoomBy(2, middle())), button('+', 'Zoom in', () => zoomBy(0.5, middle())), button('Whole step', 'Show the whole step', wholeView))),
    chart.plot, legend(names.map(name => [swatch(phaseColor(name)), name]).concat([[html('i', {class: 'under', style: 'background:var(--ink)'}), 'what binds']])), chart.line,
    merged ? html('p', {class: 'note'}, 'Neighbouring events that are too short to be seen are drawn as one.') : null, streamTable(data), chart.tip);
  const timeAt = clientX => { const box = chart.plot.getBoundingClientRect(); return chart.x.invert((clientX - box.left) / box.width * chart.scale); };
  makeZoomable(chart.plot, timeAt, event => pickEvent(chart, findEvent(chart, event.clientX, event.clientY)));
  chart.plot.addEventListener('pointermove', event => showTip(chart, event));
  chart.plot.addEventListener('pointerleave', () => { chart.tip.hidden = true; });
  chart.plot.addEventListener('keydown', event => timelineKeys(chart, event));
  onWidth(chart.plot, width => paintTimeline(chart, width));
  view.listeners.push(() => repaint(chart.plot));
  return chart.figure;
}

function showTimeline(data) {
  const there = data.measured || data.predicted;
  byId('time').hidden = !there;
  if (there) replace(byId('timeline'), makeTimeline(data));
}
