// Events of a timeline: their colours, what is said of one, and what it waited for.
const EVENT = {stream: 0, name: 1, block: 2, section: 3, microBatch: 4, phase: 5, start: 6, length: 7, bytes: 8, count: 9, chained: 10, cause: 11};
const PHASES = ['forward', 'recomputation', 'backward', 'update'];
const phaseColor = name => PHASES.includes(name) ? name : name === 'finish' ? 'update' : 'other';
const MOVES = ['parameters', 'gradients', 'unreduced', 'optimizer', 'activations'];
const sourcesOf = data => [['predicted', data.predicted], ['measured', data.measured]].filter(([, timeline]) => timeline);
const mainTimeline = data => data.measured || data.predicted;

// A timeline's events by stream, in their order; those of one stream do not overlap. Made once for each timeline.
const indexed = new WeakMap();
function eventsOf(timeline) {
  if (!indexed.has(timeline)) {
    const streams = timeline.streams.map(() => []);
    timeline.events.forEach((event, i) => { event.index = i; streams[event[EVENT.stream]].push(event); });
    indexed.set(timeline, {streams: streams.map(events => ({events, starts: events.map(event => event[EVENT.start])}))});
  }
  return indexed.get(timeline).streams;
}
const endOf = event => event[EVENT.start] + event[EVENT.length];
const isCopy = (timeline, event) => /copy|disk/.test(timeline.streams[event[EVENT.stream]].role);
const movesOf = (timeline, event) => timeline.moves ? timeline.moves[event[EVENT.name]] : '';
const eventColor = (timeline, event) => isCopy(timeline, event) ? (MOVES.includes(movesOf(timeline, event)) ? movesOf(timeline, event) : 'other')
  : phaseColor(timeline.phases[event[EVENT.phase]]);
const causeOf = (timeline, event) => event[EVENT.cause] >= 0 ? timeline.events[event[EVENT.cause]] : null;

const eventTitle = (timeline, event) => {
  const block = timeline.blocks[event[EVENT.block]], name = timeline.names[event[EVENT.name]];
  return '“' + name + '”' + (block && !name.includes(block.replace(' ', '.')) ? ' of ' + block : '');
};
function waitText(timeline, event) {
  const cause = causeOf(timeline, event), {events} = eventsOf(timeline)[event[EVENT.stream]], before = events[event.index - events[0].index - 1];
  const stood = event[EVENT.start] - (before ? endOf(before) : 0);
  if (!cause) return timeline.moves ? 'Waited for nothing of this step.' : '';
  const name = eventTitle(timeline, cause), role = roleName(timeline.streams[cause[EVENT.stream]].role);
  if (cause[EVENT.stream] === event[EVENT.stream]) return `Began when ${name} before it ended.`;
  return (stood > 1 ? `Waited ${seconds(stood / 1e6)} for ` : 'Began at the end of ') + `${name} on the ${role} stream.`;
}

function describeEvent(row, event) {
  const t = row.timeline, block = t.blocks[event[EVENT.block]], phase = t.phases[event[EVENT.phase]], section = t.sections[event[EVENT.section]], more = event[EVENT.count] - 1;
  const moved = event[EVENT.bytes], rate = moved && event[EVENT.length] ? ` at ${bytes(moved / event[EVENT.length] * 1e6)}/s` : '', what = movesOf(t, event);
  return [t.names[event[EVENT.name]] + (more > 0 ? ` and ${plural(more, 'shorter event')} nearby` : ''),
    [block, phase, section, more > 0 || event[EVENT.microBatch] < 0 ? '' : 'micro-batch ' + event[EVENT.microBatch]].filter((text, i, all) => text && all.indexOf(text) === i).join(', '),
    `${seconds(event[EVENT.length] / 1e6)}, from ${tickTime(event[EVENT.start], event[EVENT.length] + 1)}` + (moved ? `; ${bytes(moved)}${what ? ' of ' + what : ''}${rate}` : ''),
    waitText(t, event),
    `${row.source}, ${roleName(t.streams[event[EVENT.stream]].role)} stream` + (event[EVENT.chained] ? '; on the chain that binds the step' : '')].filter(text => text);
}

// Rectangles of one colour as one path. What is narrower than a pixel is drawn one pixel wide, once.
function makeShapes() {
  const shapes = {}, last = {};
  return {
    add(name, from, to, y, height) {
      const width = Math.max(to - from, 1), pixel = Math.floor(from), lane = name + y;
      if (width <= 1 && last[lane] === pixel) return;
      if (width <= 1) last[lane] = pixel;
      const gap = width > 3 ? 0.6 : 0;
      (shapes[name] = shapes[name] || []).push(`M${px(from)} ${px(y)}h${px(width - gap)}v${px(height)}h${px(gap - width)}Z`);
    },
    paths: opacity => Object.entries(shapes).map(([name, d]) => svg('path', {fill: color(name), 'fill-opacity': opacity, d: d.join('')})),
  };
}
// Calls with each event of a list that is at least partly shown.
function eachShown(list, view, call) {
  const {events, starts} = list;
  let first = above(starts, view.from);
  while (first > 0 && endOf(events[first - 1]) > view.from) first--;
  for (let i = first; i < events.length && starts[i] < view.to; i++) call(events[i], i);
}
// The event of a list nearest to a time, within some pixels.
function nearest(list, us, slack) {
  const i = above(list.starts, us), away = event => Math.max(event[EVENT.start] - us, us - endOf(event), 0);
  const near = list.events.slice(Math.max(0, i - 3), i + 2).map(event => ({event, away: away(event)})).filter(found => found.away <= slack).sort((a, b) => a.away - b.away)[0];
  return near ? near.event : null;
}
