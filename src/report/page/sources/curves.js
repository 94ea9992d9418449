// The curves of training. Where a point stands for many steps, a band goes from their minimum to their maximum.
const CURVES = [
  {title: 'Loss', series: [{name: 'loss', label: 'training'}, {name: 'val_loss', label: 'validation', marks: true}], format: v => digits(v, 4), tick: v => '' + +v.toPrecision(4)},
  {title: 'Throughput', unit: 'tokens/s', series: [{name: 'tokens_per_s', label: 'tokens/s'}], format: v => amount(v), fromZero: true},
  {title: 'Margin of rewards', series: [{name: 'margin', label: 'training'}, {name: 'val_margin', label: 'validation', marks: true}], format: v => digits(v, 3), tick: v => '' + +v.toPrecision(3), small: true},
  {title: 'Pairs in the right order', series: [{name: 'accuracy', label: 'training'}, {name: 'val_accuracy', label: 'validation', marks: true}], format: v => (100 * v).toFixed(1) + '%', tick: v => (100 * v).toFixed(0) + '%', fromZero: true, small: true},
  {title: 'Step time', series: [{name: 'step_s', label: 'step'}], format: seconds, fromZero: true, small: true, predicted: true},
  {title: 'Learning rate', series: [{name: 'lr', label: 'learning rate'}], format: v => v === 0 ? '0' : digits(v, 2), fromZero: true, small: true},
  {title: 'Load of experts', series: [{name: 'expert_max', label: 'maximum, as a multiple of an equal share'}, {name: 'expert_min', label: 'minimum', marks: true}], format: v => digits(v, 3), fromZero: true, small: true},
  {title: 'Gradient norm', series: [{name: 'grad_norm', label: 'norm before clipping'}], format: v => digits(v, 3), small: true, spread: true, tick: v => '' + +v.toPrecision(3)},
];
const curveFigures = new Map();

// Of what is shown of them.
function valueRange(parts) {
  let low = Infinity, high = -Infinity;
  for (const part of parts) {
    const first = Math.max(0, above(part.xs, trainView.from) - 1), last = Math.min(part.xs.length, above(part.xs, trainView.to) + 1);
    for (let i = first; i < last; i++) {
      low = Math.min(low, part.low && !part.smooth ? part.low[i] : part.raw[i]);
      high = Math.max(high, part.high && !part.smooth ? part.high[i] : part.raw[i]);
    }
  }
  return {low, high};
}
function curveRange(chart, parts, extra) {
  let {low, high} = valueRange(parts);
  if (!(low <= high)) return {low: 0, high: 1};
  if (known(extra)) high = Math.max(high, extra), low = Math.min(low, extra);
  if (low > 0 && (train.log || chart.spread && high / low > 50)) return {low: low * 0.97, high: Math.max(high * 1.03, low * 1.02), log: true};
  if (chart.fromZero && low >= 0) return {low: 0, high: high * 1.08 || 1};
  const pad = 0.06 * (high - low) || 0.05 * Math.abs(high) || 1;
  return {low: low - pad, high: high + pad};
}

function drawSeries(part, x, y, few) {
  const first = Math.max(0, above(part.xs, trainView.from) - 1), last = Math.min(part.xs.length, above(part.xs, trainView.to) + 1), own = part.run.other ? ' other' : '';
  const along = values => { const out = []; for (let i = first; i < last; i++) out.push([x(part.xs[i]), y(values[i])]); return out; };
  const line = along(part.line);
  if (part.marks) return [svg('path', {class: 'line second' + own, d: path(line)}), line.length < 60 ? line.map(([cx, cy]) => svg('circle', {class: 'mark' + own, cx: px(cx), cy: px(cy), r: 3.2})) : null];
  return [part.low && !part.smooth ? svg('path', {class: 'band' + own, d: path(along(part.high).concat(along(part.low).reverse())) + 'Z'}) : null,
    part.smooth ? svg('path', {class: 'line faint' + own, d: path(along(part.raw))}) : null, svg('path', {class: 'line' + own, d: path(line)}),
    line.length === 1 ? svg('circle', {class: 'mark' + own, cx: line[0][0], cy: line[0][1], r: 3}) : null];
}

const partName = (part, parts) => (parts.some(other => other.run !== part.run) ? part.run.name + ' ' : '') + part.label;
function readPart(chart, part, at) {
  const i = Math.min(part.xs.length - 1, above(part.xs, at - 1e-9 * Math.abs(at))), before = i > 0 && at - part.xs[i - 1] < part.xs[i] - at ? i - 1 : i;
  const spread = part.low && part.low[before] !== part.high[before];
  return {step: part.steps[before], x: part.xs[before], text: chart.format(part.line[before]) + (part.smooth ? ` smoothed, ${chart.format(part.raw[before])} itself` : spread ? ` (${chart.format(part.low[before])} to ${chart.format(part.high[before])})` : '')};
}
function readCurve(figure, at) {
  const {chart, parts} = figure.state, reads = parts.map(part => ({part, ...readPart(chart, part, at)}));
  return reads.map((read, i) => (i === 0 || read.step !== reads[i - 1].step ? `step ${whole(read.step)}: ` : '') + `${partName(read.part, parts)} ${read.text}`).join('; ');
}

function curveTitle(chart, parts) {
  return chart.title + ': ' + parts.map(part => {
    const last = part.raw.length - 1;
    return `${partName(part, parts)} from ${chart.format(part.raw[0])} to ${chart.format(part.raw[last])} at step ${whole(part.steps[last])}`;
  }).join('; ');
}

function paintCurve(figure, plot, width) {
  const {chart, parts, predicted} = figure.state, height = chart.small ? 170 : 250, range = curveRange(chart, parts, predicted), bottom = height - 24;
  const make = range.log ? logarithmic : linear, y = make(range.low, range.high, bottom, 8), tick = chart.tick || chart.format, marks = y.ticks(chart.small ? 4 : 5);
  const left = 10 + Math.max(...marks.map(v => tick(v).length), 3) * 6.6, clip = 'clip-' + chart.title.replace(/\W/g, '-').toLowerCase();
  const x = Object.assign(linear(trainView.from, trainView.to, left, width - 10), {low: left, high: width - 10}), [axis, axisTick] = AXES[train.axis];
  const steps = x.ticks(Math.max(2, Math.min(8, (width - left) / 80)), train.axis === 'step').filter(v => v > 0 || train.axis !== 'step');
  replace(plot, svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': curveTitle(chart, parts)},
    svg('title', {}, curveTitle(chart, parts)), svg('clipPath', {id: clip}, svg('rect', {x: left - 4, y: 0, width: width - left, height: bottom + 1})),
    marks.map(v => [svg('line', {class: 'grid', x1: left, x2: width - 4, y1: y(v), y2: y(v)}), svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, tick(v))]),
    steps.map(v => svg('text', {x: x(v), y: height - 6, 'text-anchor': x(v) > width - 24 ? 'end' : 'middle'}, axisTick(v))),
    steps.length && x(steps[0]) - left > 8 * axis.length + 12 ? svg('text', {x: left, y: height - 6}, axis) : null,
    svg('line', {class: 'axis', x1: left, x2: width - 4, y1: bottom, y2: bottom}),
    svg('g', {'clip-path': `url(#${clip})`}, parts.map(part => drawSeries(part, x, y))),
    known(predicted) ? [svg('line', {class: 'limit', x1: left, x2: width - 4, y1: y(predicted), y2: y(predicted)}),
      svg('text', {class: 'limit-text', x: width - 6, y: y(predicted) + (bottom - y(predicted) > 24 ? 18 : -8), 'text-anchor': 'end'}, 'predicted ' + seconds(predicted))] : null, cursorLine(8, bottom)));
  Object.assign(plot, {x, scale: width});
}

// Shift with the arrows reads point by point.
function curveKeys(figure, event) {
  const {xs} = figure.state.parts[0], by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
  if (!by || event.key.startsWith('Arrow') && !event.shiftKey) return;
  const at = trainView.at === null ? xs.length : above(xs, trainView.at - 1e-9 * trainView.at);
  pointAt(trainView, xs[Math.max(0, Math.min(xs.length - 1, at + by))]);
  event.preventDefault();
}

function makeCurve(chart) {
  const output = html('output', {'aria-live': 'polite'}), figure = html('figure', {class: 'card' + (chart.small ? ' small' : '')});
  const plot = makePlot(trainView, chart.title + '; arrow keys move, plus and minus zoom, Shift with arrows reads values', (node, width) => paintCurve(figure, node, width));
  plot.addEventListener('keydown', event => curveKeys(figure, event));
  trainView.cursors.push(at => { output.textContent = at === null ? figure.state.rest : readCurve(figure, at); });
  fill(figure, {}, [html('figcaption', {}, html('h3', {}, chart.title + (chart.unit ? ', ' + chart.unit : '')), output), plot]);
  return Object.assign(figure, {plot, output});
}

// What all charts share: zoom, smoothing, scale and axis. `again` draws anew.
function makeTrainTools(data, again) {
  const slider = html('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: train.smooth, 'aria-label': 'Smoothing'}), shown = html('span', {class: 'value'}, train.smooth ? train.smooth.toFixed(2) : 'none');
  slider.addEventListener('input', () => { train.smooth = +slider.value; shown.textContent = train.smooth ? train.smooth.toFixed(2) : 'none'; again(); });
  const log = html('input', {type: 'checkbox', checked: train.log});
  log.addEventListener('change', () => { train.log = log.checked; again(); });
  const axis = html('select', {'aria-label': 'Horizontal axis'}, Object.entries(AXES).map(([name, [text]]) => html('option', {value: name, selected: name === train.axis}, text)));
  axis.addEventListener('change', () => { train.axis = axis.value, trainView.begin = NaN; again(); }); // another axis: all of it
  return html('div', {class: 'tools'}, html('label', {}, 'Smoothing ', slider, shown), html('label', {}, log, ' Log scale'), html('label', {}, 'Along ', axis), zoomButtons(trainView, 'All', 'Show all steps'));
}
const runsLegend = runs => legend(runs.map(run => [html('i', {class: 'stroke' + (run.other ? ' other' : '')}), run.name]).concat(
  runs.some(run => run.metrics.curves.val_loss) ? [[html('i', {class: 'stroke dashed'}), 'dashed: validation']] : []));

function chartsOf(data) {
  const runs = runsOf(data), shown = [];
  for (const chart of CURVES) {
    const parts = runs.flatMap(run => chart.series.map(series => makeSeries(run, series))).filter(part => part);
    if (!parts.length) continue;
    if (!curveFigures.has(chart)) curveFigures.set(chart, makeCurve(chart));
    const figure = curveFigures.get(chart), last = parts[0].raw.length - 1;
    figure.state = {chart, parts, predicted: chart.predicted ? predictedStep(data) : null, rest: `last ${chart.format(parts[0].raw[last])}`};
    if (trainView.at === null) figure.output.textContent = figure.state.rest;
    shown.push(figure);
  }
  const all = shown.flatMap(figure => figure.state.parts);
  if (all.length) {
    const begin = train.axis === 'step' ? Math.min(...all.map(part => part.xs[0])) : 0, end = Math.max(...all.map(part => part.xs[part.xs.length - 1]));
    openView(trainView, begin, Math.max(end, begin + (train.axis === 'step' ? 1 : 1e-9)), train.axis === 'step' ? 4 : (end - begin) / 1000);
  }
  shown.forEach(figure => repaint(figure.plot));
  return {runs, shown};
}

// The last line of metrics.jsonl that tells of experts.
function showExperts(data) {
  const found = data.metrics && data.metrics.experts, place = byId('experts'), lists = found && Array.isArray(found.slots) ? found.slots.filter(Array.isArray) : [];
  const rows = lists.map((slots, layer) => ['' + layer, whole(Math.min(...slots)), whole(Math.max(...slots)), slots.map(whole).join('  ')]);
  const open = !!place.querySelector('details[open]');
  replace(place, rows.length ? html('details', {open}, html('summary', {}, `Tokens by expert, step ${whole(found.step)}`), table(['#layer', '#minimum', '#maximum', 'by expert'], rows)) : null);
}

function showCurves(data) {
  showExperts(data);
  const {runs, shown} = chartsOf(data), place = byId('curves').firstChild;
  byId('training').hidden = data.kind !== 'run';
  showCurves.data = data;
  const there = place && place.querySelector && place.querySelector('.charts');
  if (there && there.childNodes.length === shown.length) return; // charts and tools keep their state
  replace(byId('curves'), shown.length ? html('div', {class: runs.length > 1 ? 'two-runs' : null}, makeTrainTools(data, () => chartsOf(showCurves.data)), runs.length > 1 || data.metrics.curves.val_loss ? runsLegend(runs) : null,
    html('div', {class: 'charts'}, shown), html('p', {class: 'note hint'}, ZOOM_HINT + ' Shift with the arrow keys reads values.')) : html('p', {class: 'note card'}, 'No step is done yet.'));
}
