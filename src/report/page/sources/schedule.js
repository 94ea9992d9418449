// The schedule: blocks from the embedding down to the head, over time. In each block's row the upper part is what is
// computed, the lower part what is copied for it.
function makeSchedule(data) {
  const [source, timeline] = sourcesOf(data)[sourcesOf(data).length - 1];
  const rows = timeline.blocks.map((name, block) => ({name, block, source, timeline, work: [], copies: []})), other = {name: 'other', block: -1, source, timeline, work: [], copies: []};
  for (const event of timeline.events) {
    const row = rows[event[EVENT.block]] || other;
    (isCopy(timeline, event) ? row.copies : row.work).push(event);
  }
  const list = events => { events.sort((a, b) => a[EVENT.start] - b[EVENT.start]); return {events, starts: events.map(event => event[EVENT.start])}; };
  const shown = rows.concat(other).filter(row => row.work.length || row.copies.length);
  shown.forEach(row => { row.work = list(row.work), row.copies = list(row.copies); });
  return {source, timeline, rows: shown, copies: shown.some(row => row.copies.events.length)};
}

const scheduleRowHeight = count => Math.max(5, Math.min(30, Math.floor(430 / count)));
// As many names as there is space for, always the first and the last.
function rowLabels(rows, height) {
  const every = Math.ceil(13 / height);
  return rows.map((row, i) => i % every === 0 && i < rows.length - every || i === rows.length - 1 ? row.name : '');
}

function paintSchedule(chart, plot, width) {
  const {rows, timeline, copies} = chart.schedule, height = scheduleRowHeight(rows.length), left = gutter(width), right = width - 4, bottom = 4 + rows.length * height;
  const x = Object.assign(linear(stepView.from, stepView.to, left, right), {low: left, high: right}), shapes = makeShapes(), labels = rowLabels(rows, height), clamp = us => Math.max(left, Math.min(right, x(us)));
  const gap = height > 12 ? 2 : 0.5, work = (height - gap) * (copies ? 0.62 : 1);
  rows.forEach((row, i) => {
    row.y = 4 + i * height, row.height = height;
    eachShown(row.work, stepView, event => shapes.add(eventColor(timeline, event), clamp(event[EVENT.start]), clamp(endOf(event)), row.y, work));
    eachShown(row.copies, stepView, event => shapes.add(eventColor(timeline, event), clamp(event[EVENT.start]), clamp(endOf(event)), row.y + work, height - gap - work));
  });
  const title = scheduleTitle(chart.schedule);
  replace(plot, svg('svg', {viewBox: `0 0 ${width} ${bottom + 22}`, role: 'img', 'aria-label': title}, svg('title', {}, title),
    svg('rect', {class: 'lane', x: left, y: 4, width: right - left, height: bottom - 4}), timeAxis(x, left, width, bottom),
    rows.map((row, i) => [height > 8 && i > 0 ? svg('line', {class: 'between', x1: left, x2: right, y1: row.y - gap / 2, y2: row.y - gap / 2}) : null,
      labels[i] ? svg('text', {x: left - 6, y: row.y + Math.min(height, 14) / 2 + (height > 14 ? (height - 14) / 2 : 0) + 4, 'text-anchor': 'end'}, labels[i]) : null]),
    shapes.paths(1), markPicked(chart, x, event => {
      const row = rows.find(r => r.block === event[EVENT.block]) || rows[rows.length - 1], below = isCopy(timeline, event);
      return {y: row.y + (below ? work : 0), height: below ? height - gap - work : work};
    }, timeline), cursorLine(4, bottom)));
  Object.assign(plot, {x, scale: width, work});
}

const scheduleTitle = ({rows, timeline}) => `The schedule, ${rows.length} blocks over ${seconds(timeline.step_s)}: ` + rows.map(row => {
  const sums = {};
  for (const event of row.work.events) sums[timeline.phases[event[EVENT.phase]]] = (sums[timeline.phases[event[EVENT.phase]]] || 0) + event[EVENT.length];
  return row.name + ' ' + Object.entries(sums).map(([phase, us]) => `${phase} ${seconds(us / 1e6)}`).join(', ');
}).slice(0, 40).join('; ');

function findInSchedule(chart, plot, clientX, clientY) {
  const box = plot.getBoundingClientRect(), zoom = plot.scale / box.width, y = (clientY - box.top) * zoom, us = plot.x.invert((clientX - box.left) * zoom);
  const row = chart.schedule.rows.find(r => y >= r.y && y < r.y + r.height);
  if (!row || us < stepView.from || us > stepView.to) return null;
  const slack = 4 * (stepView.to - stepView.from) / plot.scale, lists = y - row.y < plot.work ? [row.work, row.copies] : [row.copies, row.work];
  const event = nearest(lists[0], us, slack) || nearest(lists[1], us, slack);
  return event ? {row, event} : null;
}
