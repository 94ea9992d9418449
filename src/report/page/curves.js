// The curves of training. Where a bucket stands for many steps the band goes from their least to their most.
const CURVES = [
  {title: 'Loss', series: [{name: 'loss', label: 'training'}, {name: 'val_loss', label: 'validation', marks: true}], format: v => digits(v, 4), tick: v => '' + +v.toPrecision(6)},
  {title: 'Throughput', unit: 'tokens/s', series: [{name: 'tokens_per_s', label: 'tokens/s'}], format: v => amount(v), fromZero: true},
  {title: 'Step time', series: [{name: 'step_s', label: 'step'}], format: seconds, fromZero: true, small: true, predicted: true},
  {title: 'Learning rate', series: [{name: 'lr', label: 'learning rate'}], format: v => v === 0 ? '0' : digits(v, 2), fromZero: true, small: true},
  {title: 'Gradient norm', series: [{name: 'grad_norm', label: 'norm before clipping'}], format: v => digits(v, 3), small: true, spread: true, tick: v => '' + +v.toPrecision(3)},
];
const curveFigures = new Map();

function curveRange(chart, parts, extra) {
  let low = Infinity, high = -Infinity;
  for (const {curve} of parts) {
    for (const value of curve.low || curve.mean) low = Math.min(low, value);
    for (const value of curve.high || curve.mean) high = Math.max(high, value);
  }
  if (known(extra)) high = Math.max(high, extra);
  if (chart.spread && low > 0 && high / low > 50) return {low: low * 0.8, high: high * 1.25, log: true};
  if (chart.fromZero && low >= 0) return {low: 0, high: high * 1.08 || 1};
  const pad = 0.06 * (high - low) || 0.05 * Math.abs(high) || 1;
  return {low: low - pad, high: high + pad};
}

function drawCurve(part, x, y) {
  const {curve, marks} = part, line = curve.step.map((step, i) => [x(step), y(curve.mean[i])]);
  if (marks) return [
    svg('path', {class: 'line second', d: path(line)}),
    line.length < 60 ? line.map(([cx, cy]) => svg('circle', {class: 'mark', cx: cx.toFixed(1), cy: cy.toFixed(1), r: 3.2})) : null];
  const edge = name => curve.step.map((step, i) => [x(step), y(curve[name][i])]);
  return [curve.low ? svg('path', {class: 'band', d: path(edge('high').concat(edge('low').reverse())) + 'Z'}) : null,
    svg('path', {class: 'line', d: path(line)}),
    line.length === 1 ? svg('circle', {class: 'mark', cx: line[0][0], cy: line[0][1], r: 3}) : null];
}

function readCurve(chart, parts, step) {
  const at = curve => Math.min(curve.step.length - 1, Math.max(0, above(curve.step, step - 1e-9)));
  return 'step ' + whole(step) + ': ' + parts.map(({label, curve}) => {
    const i = at(curve), few = curve.low && curve.low[i] !== curve.high[i];
    return label + ' ' + chart.format(curve.mean[i]) + (few ? ` (${chart.format(curve.low[i])} to ${chart.format(curve.high[i])})` : '');
  }).join(', ');
}

function curveTitle(chart, parts) {
  return chart.title + ': ' + parts.map(({label, curve}) => {
    const last = curve.mean.length - 1;
    return `${label} from ${chart.format(curve.mean[0])} to ${chart.format(curve.mean[last])} at step ${whole(curve.step[last])}`;
  }).join('; ');
}

function paintCurve(figure, width) {
  const {chart, parts, predicted} = figure.state, height = chart.small ? 170 : 250, range = curveRange(chart, parts, predicted);
  const first = Math.min(...parts.map(p => p.curve.step[0])), last = Math.max(...parts.map(p => p.curve.step[p.curve.step.length - 1]));
  const make = range.log ? logarithmic : linear, bottom = height - 24;
  const tick = chart.tick || chart.format, labels = make(range.low, range.high, bottom, 8), marks = labels.ticks(chart.small ? 4 : 5);
  const left = 10 + Math.max(...marks.map(v => tick(v).length)) * 6.6;
  const x = linear(first, Math.max(last, first + 1), left, width - 10), y = make(range.low, range.high, bottom, 8);
  const cursor = svg('line', {class: 'cursor', y1: 8, y2: bottom, visibility: 'hidden'});
  const steps = x.ticks(Math.max(2, Math.min(8, (width - left) / 80)), true);
  const drawing = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': curveTitle(chart, parts)},
    svg('title', {}, curveTitle(chart, parts)),
    marks.map(v => [svg('line', {class: 'grid', x1: left, x2: width - 4, y1: y(v), y2: y(v)}),
      svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, tick(v))]),
    steps.map(v => svg('text', {x: x(v), y: height - 6, 'text-anchor': x(v) > width - 24 ? 'end' : 'middle'}, amount(v))),
    x(steps[0]) - left > 44 ? svg('text', {x: left, y: height - 6}, 'step') : null,
    svg('line', {class: 'axis', x1: left, x2: width - 4, y1: bottom, y2: bottom}),
    parts.map(part => drawCurve(part, x, y)),
    known(predicted) ? [svg('line', {class: 'limit', x1: left, x2: width - 4, y1: y(predicted), y2: y(predicted)}),
      svg('text', {class: 'limit-text', x: width - 6, y: y(predicted) + (bottom - y(predicted) > 24 ? 18 : -8), 'text-anchor': 'end'}, 'predicted ' + seconds(predicted))] : null, cursor);
  figure.state.x = x, figure.state.cursor = cursor, figure.state.scale = width;
  replace(figure.plot, drawing);
}

function showCurve(figure, step) {
  const {chart, parts, x, cursor} = figure.state;
  const steps = parts[0].curve.step, i = Math.min(steps.length - 1, above(steps, step - 1e-9));
  const before = i > 0 && step - steps[i - 1] < steps[i] - step ? i - 1 : i;
  figure.state.at = steps[before];
  fill(cursor, {x1: x(steps[before]), x2: x(steps[before]), visibility: 'visible'}, []);
  figure.output.textContent = readCurve(chart, parts, steps[before]);
}

function moveCurve(figure, event) {
  const steps = figure.state.parts[0].curve.step, by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
  if (!by) return;
  const at = above(steps, (figure.state.at || steps[steps.length - 1]) - 1e-9);
  showCurve(figure, steps[Math.max(0, Math.min(steps.length - 1, at + by))]);
  event.preventDefault();
}

function makeCurve(chart) {
  const plot = html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': chart.title + ', arrow keys read values'});
  const output = html('output', {'aria-live': 'polite'});
  const figure = html('figure', {class: 'card' + (chart.small ? ' small' : '')},
    html('figcaption', {}, html('h3', {}, chart.title + (chart.unit ? ', ' + chart.unit : '')), output), plot);
  Object.assign(figure, {plot, output});
  const point = event => {
    const box = plot.getBoundingClientRect(), pixel = (event.clientX - box.left) / box.width * figure.state.scale;
    showCurve(figure, figure.state.x.invert(pixel));
  };
  plot.addEventListener('pointermove', point);
  plot.addEventListener('pointerdown', point);
  plot.addEventListener('pointerleave', () => { output.textContent = figure.state.rest; fill(figure.state.cursor, {visibility: 'hidden'}, []); });
  plot.addEventListener('keydown', event => moveCurve(figure, event));
  onWidth(plot, width => paintCurve(figure, width));
  return figure;
}

function showCurves(data) {
  const curves = data.metrics ? data.metrics.curves : {}, shown = [];
  for (const chart of CURVES) {
    const parts = chart.series.filter(s => curves[s.name] && curves[s.name].step.length).map(s => ({...s, curve: curves[s.name]}));
    if (!parts.length) continue;
    if (!curveFigures.has(chart)) curveFigures.set(chart, makeCurve(chart));
    const figure = curveFigures.get(chart), last = parts[0].curve.step.length - 1;
    figure.state = {...figure.state, chart, parts, predicted: chart.predicted ? predictedStep(data) : null};
    figure.state.rest = parts.length > 1 ? 'solid: training; dashed: validation' : 'last ' + chart.format(parts[0].curve.mean[last]);
    if (figure.state.at === undefined) figure.output.textContent = figure.state.rest;
    repaint(figure.plot);
    shown.push(figure);
  }
  byId('training').hidden = data.kind !== 'run';
  const place = byId('curves').firstChild;
  if (place && place.childNodes.length === shown.length && place.className === 'charts') return; // charts keep their cursor
  replace(byId('curves'), shown.length ? html('div', {class: 'charts'}, shown) : html('p', {class: 'note card'}, 'No step is done yet.'));
}
