// One step: schedule, memory and streams under one another on one time axis, with one zoom and one cursor.
const gutter = width => width < 500 ? 66 : 84;

function timeAxis(x, from, width, y) {
  const wanted = Math.max(2, Math.min(10, (width - from) / (width < 500 ? 62 : 90)));
  return x.ticks(wanted).map(us => [svg('line', {class: 'grid', x1: x(us), x2: x(us), y1: 0, y2: y}),
    svg('text', {x: x(us), y: y + 15, 'text-anchor': x(us) > width - 30 ? 'end' : 'middle'}, us === 0 ? '0' : tickTime(us, stepView.to - stepView.from))]);
}
// Enough digits to tell neighbours apart.
function tickTime(us, span) {
  const [unit, name] = us >= 1e6 ? [1e6, 's'] : us >= 1e3 ? [1e3, 'ms'] : [1, 'µs'];
  return (us / unit).toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(span / unit) + 1)))).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '') + '\u00a0' + name;
}

// The picked event, what it waited for, and a line from the one's end to the other's beginning. `place(event)` gives
// y and height of an event's row in this drawing.
function markPicked(chart, x, place, timeline) {
  if (!chart.picked || timeline && chart.picked.row.timeline !== timeline) return null;
  const t = chart.picked.row.timeline, cause = causeOf(t, chart.picked.event), box = (event, kind) => {
    const at = place(event, t), from = Math.max(x.low, x(event[EVENT.start])), to = Math.min(x.high, x(endOf(event)));
    return at && to >= x.low && from <= x.high ? svg('rect', {class: kind, x: from - 1, y: at.y - 1, width: Math.max(3, to - from + 2), height: at.height + 2}) : null;
  };
  const a = cause && place(cause, t), b = place(chart.picked.event, t), inside = us => x(us) >= x.low && x(us) <= x.high;
  const link = a && b && a.y !== b.y && inside(endOf(cause)) && inside(chart.picked.event[EVENT.start]) ?
    svg('line', {class: 'waits', x1: x(endOf(cause)), y1: a.y + a.height / 2, x2: x(chart.picked.event[EVENT.start]), y2: b.y + b.height / 2}) : null;
  return [cause ? box(cause, 'cause') : null, box(chart.picked.event, 'picked'), link];
}

function pickEvent(chart, picked) {
  chart.picked = picked;
  const cause = picked && causeOf(picked.row.timeline, picked.event);
  replace(chart.line, document.createTextNode(picked ? describeEvent(picked.row, picked.event).join(' · ') + ' ' : chart.hint),
    cause ? button('Go to what it waited for', 'Go to what it waited for', () => followCause(chart)) : null);
  if (picked) {
    const start = picked.event[EVENT.start], end = endOf(picked.event), span = stepView.to - stepView.from;
    if (end < stepView.from || start > stepView.to) setView(stepView, start - span / 2, start + span / 2);
  }
  chart.plots.forEach(repaint);
}
function followCause(chart) {
  const {row, event} = chart.picked, cause = causeOf(row.timeline, event);
  if (cause) pickEvent(chart, {row: {...row}, event: cause});
}

function showTip(chart, figure, found, event) {
  chart.tip.hidden = !found;
  if (!found) return;
  const box = figure.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  chart.tip.textContent = describeEvent(found.row, found.event).join('\n');
  chart.tip.style.left = Math.max(4, Math.min(x + 14, box.width - chart.tip.offsetWidth - 4)) + 'px';
  chart.tip.style.top = y + 18 + 'px';
}
// A plot of events: pointing reads one, a tap picks it.
function eventPlot(chart, label, paint, find) {
  const plot = makePlot(stepView, label, (node, width) => paint(chart, node, width), event => pickEvent(chart, find(chart, plot, event.clientX, event.clientY)));
  plot.addEventListener('pointermove', event => showTip(chart, chart.figure, plot.classList.contains('held') || event.pointerType === 'touch' ? null : find(chart, plot, event.clientX, event.clientY), event));
  plot.addEventListener('pointerleave', () => { chart.tip.hidden = true; });
  plot.addEventListener('keydown', event => timelineKeys(chart, event));
  chart.plots.push(plot);
  return plot;
}

function bindsLine(timeline) {
  const total = timeline.bounds.reduce((sum, bound) => sum + bound.seconds, 0);
  if (!total) return null;
  return html('p', {class: 'words'}, html('strong', {}, 'What binds: '), list(timeline.bounds.slice(0, 4).map(bound => `${boundName(bound)} ${percent(bound.seconds / timeline.step_s)}`)) +
    ' of the step. The line under the events marks this chain: only if something on it gets faster does the step get shorter.');
}

function makeStep(data) {
  const sources = sourcesOf(data), main = mainTimeline(data), source = data.measured ? 'measured' : 'predicted';
  const chart = {schedule: makeSchedule(data), lanes: makeLanes(data), plots: [], hint: 'Point at an event, tap it, or press Shift with the arrow keys, to read it and what it waited for.'};
  const phases = PHASES.filter(name => main.events.some(event => !isCopy(main, event) && eventColor(main, event) === name));
  const moves = MOVES.concat('other').filter(name => main.events.some(event => isCopy(main, event) && eventColor(main, event) === name));
  chart.tip = html('div', {class: 'tip', hidden: true});
  chart.line = html('p', {class: 'detail-line', role: 'status'}, chart.hint);
  const schedule = eventPlot(chart, 'Schedule: blocks over time; arrows move, plus and minus zoom, 0 shows all, Shift with arrows reads events', paintSchedule, findInSchedule);
  const timeline = eventPlot(chart, 'Streams over time; arrows move, plus and minus zoom, 0 shows all, Shift with arrows reads events', paintTimeline, findEvent);
  const merged = sources.some(([, t]) => t.events.length < t.recorded);
  const memories = makeMemories(data);
  chart.figure = html('figure', {class: 'card step'}, html('div', {class: 'tools'}, html('span', {}, ZOOM_HINT + ' All drawings of the step move together.'), zoomButtons(stepView, 'Whole step', 'Show the whole step')),
    html('h3', {}, `Schedule, ${source}`), schedule,
    legend(phases.map(name => [swatch(name), name]).concat(moves.length ? [['', 'copies:']] : [], moves.map(name => [swatch(name), name === 'optimizer' ? 'optimizer state' : name]))),
    memories, html('h3', {class: 'next'}, 'Streams'), timeline, legend([[html('i', {class: 'under', style: 'background:var(--ink)'}), 'what binds'], [html('i', {class: 'box'}), 'picked event'], [html('i', {class: 'box cause'}), 'what it waited for']]),
    chart.line, bindsLine(main), merged ? html('p', {class: 'note'}, 'Neighbouring events that are too short to be seen are drawn as one.') : null, streamTable(data), collectiveTable(data), chart.tip);
  return chart.figure;
}

function showStep(data) {
  const timeline = mainTimeline(data), bars = timeline ? [] : tiersOf(data).filter(tier => tier.program_bytes > 0).map(memoryBar);
  Object.assign(stepView, {listeners: [], cursors: [], at: null});
  const end = 1e6 * Math.max(...sourcesOf(data).map(([, t]) => t.step_s), 1e-6);
  openView(stepView, 0, end, Math.max(end * 1e-6, 0.5));
  byId('step').hidden = !timeline && !bars.length;
  byId('step-title').textContent = timeline ? 'One step' : "Memory at a step's peak";
  replace(byId('drawings'), timeline ? makeStep(data) : html('div', {class: 'stack'}, bars));
}
