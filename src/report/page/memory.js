// Memory over the step: for each tier the kinds on top of one another, with the capacity as a line.
const KIND_ORDER = ['parameters', 'optimizer', 'gradients', 'cache', 'inputs', 'results', 'activations', 'workspace', 'unused'];
const kindColor = kind => kind === 'unused' ? 'line' : KIND_ORDER.includes(kind) ? kind : 'other';
const kindRank = kind => KIND_ORDER.includes(kind) ? KIND_ORDER.indexOf(kind) : KIND_ORDER.length;

// For each kind from the bottom up: its name, and where it begins and ends at each point.
function stack(tier) {
  const order = tier.kinds.map((kind, i) => i).sort((a, b) => kindRank(tier.kinds[a]) - kindRank(tier.kinds[b]));
  const sums = tier.points.map(() => 0);
  return order.map(kind => ({kind: tier.kinds[kind], low: sums.slice(), high: tier.points.map((point, i) => sums[i] += point[kind + 1])}))
    .filter(layer => layer.high.some((value, i) => value > layer.low[i]));
}

// Only the part that is shown, which is what the clip leaves.
function stepPath(times, values, x, y, end) {
  const out = [], last = Math.min(times.length, above(times, view.to) + 1);
  for (let i = Math.max(0, above(times, view.from) - 1); i < last; i++)
    out.push([x(times[i]), y(values[i])], [x(i + 1 < times.length ? times[i + 1] : end), y(values[i])]);
  return out;
}

// The kind's name in its area, where that is high and wide enough in the part that is shown.
function insideLabel(layer, times, x, y, left, right) {
  let best = null;
  for (let i = 0; i < times.length; i++) {
    const from = Math.max(left, x(times[i])), heightOf = j => y(layer.low[j]) - y(layer.high[j]);
    if (from > right || heightOf(i) < 15) continue;
    let j = i, low = Infinity, high = -Infinity;
    for (; j < times.length && x(times[j]) < right; j++) {
      const nextLow = Math.min(low, y(layer.low[j])), nextHigh = Math.max(high, y(layer.high[j]));
      if (nextLow - nextHigh < 15) break;
      low = nextLow, high = nextHigh;
    }
    const to = Math.min(right, j < times.length ? x(times[j]) : right);
    if (!best || to - from > best.to - best.from) best = {from, to, y: (low + high) / 2};
    if (j > i + 1) i = j - 2;
  }
  if (!best || best.to - best.from < layer.kind.length * 6.8 + 8) return null;
  return svg('text', {class: 'inside', x: (best.from + best.to) / 2, y: best.y + 4, 'text-anchor': 'middle'}, layer.kind);
}

function paintMemory(figure, width) {
  const {tier, layers, capacity, peak, times} = figure.state, height = 230, left = 62, right = width - 4, bottom = height - 24;
  const most = Math.max(peak, tier.program_bytes || 0, capacity <= 2.5 * peak ? capacity : 0) * 1.08 || 1;
  const x = linear(view.from, view.to, left, right), y = linear(0, most, bottom, 8), clip = 'clip-' + tier.name.replace(/\W/g, '');
  const title = `${tierTitle(tier.name)}: at most ${bytes(peak)} of live buffers` + (capacity > 0 ? `, capacity ${bytes(capacity)}` : '');
  const areas = layers.map(layer => svg('path', {fill: color(kindColor(layer.kind)), d:
    path(stepPath(times, layer.high, x, y, view.end).concat(stepPath(times, layer.low, x, y, view.end).reverse())) + 'Z'}));
  const cursor = svg('line', {class: 'cursor', y1: 8, y2: bottom, visibility: 'hidden'});
  replace(figure.plot, svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title}, svg('title', {}, title),
    svg('clipPath', {id: clip}, svg('rect', {x: left, y: 0, width: right - left, height: bottom})),
    byteTicks(most, 5).map(v => [svg('line', {class: 'grid', x1: left, x2: right, y1: y(v), y2: y(v)}),
      svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, v ? bytes(v) : '0')]),
    timeAxis(x, left, width, bottom),
    svg('g', {'clip-path': `url(#${clip})`}, areas, layers.map(layer => insideLabel(layer, times, x, y, left, right)), cursor),
    svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}),
    capacity > 0 && capacity <= most ? [svg('line', {class: 'limit', x1: left, x2: right, y1: y(capacity), y2: y(capacity)}),
      svg('text', {class: 'limit-text', x: right, y: y(capacity) - 5 < 12 ? y(capacity) + 14 : y(capacity) - 5, 'text-anchor': 'end'}, 'capacity ' + bytes(capacity))] : null));
  Object.assign(figure.state, {x, scale: width, cursor});
}

function readMemory(figure, us) {
  const {layers, times, cursor, x} = figure.state;
  if (us < view.from || us > view.to) return;
  const i = Math.max(0, above(times, us) - 1), parts = layers.map(layer => [layer.kind, layer.high[i] - layer.low[i]]).filter(([, value]) => value > 0);
  fill(cursor, {x1: x(us), x2: x(us), visibility: 'visible'}, []);
  figure.output.textContent = `${tickTime(us, view.to - view.from)}: ${bytes(layers.length ? layers[layers.length - 1].high[i] : 0)} = ` + parts.map(([kind, value]) => `${kind} ${bytes(value)}`).join(' + ');
}

function makeMemory(tier, planned) {
  const layers = stack(tier), times = tier.points.map(point => point[0]), top = layers[layers.length - 1];
  const peak = top ? top.high.reduce((a, b) => Math.max(a, b), 0) : 0, capacity = planned ? planned.capacity_bytes : 0;
  const at = top ? top.high.indexOf(peak) : 0;
  const plot = html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': tierTitle(tier.name) + ' over the step; arrow keys move, plus and minus zoom'}), output = html('output', {});
  const rest = `peak ${bytes(peak)}` + (tier.program_bytes ? ` in an arena of ${bytes(tier.program_bytes)}` : '') + (capacity > 2.5 * peak ? `; capacity ${bytes(capacity)}, far above` : '');
  output.textContent = rest;
  const figure = html('figure', {class: 'card'}, html('figcaption', {}, html('h3', {}, tierTitle(tier.name)), output), plot,
    legend([['', 'At the peak:']].concat(layers.slice().reverse().filter(layer => layer.high[at] - layer.low[at] > 1e-3 * peak).map(layer => [swatch(kindColor(layer.kind)), layer.kind, bytes(layer.high[at] - layer.low[at])]),
      capacity > 0 && capacity <= 2.5 * peak ? [[html('i', {class: 'dash'}), 'capacity']] : [])));
  Object.assign(figure, {plot, output, state: {tier, layers, times, peak, capacity}});
  const timeAt = clientX => { const box = plot.getBoundingClientRect(); return figure.state.x.invert((clientX - box.left) / box.width * figure.state.scale); };
  makeZoomable(plot, timeAt, event => readMemory(figure, timeAt(event.clientX)));
  plot.addEventListener('pointermove', event => { if (!plot.classList.contains('held')) readMemory(figure, timeAt(event.clientX)); });
  plot.addEventListener('pointerleave', () => { output.textContent = rest; fill(figure.state.cursor, {visibility: 'hidden'}, []); });
  onWidth(plot, width => paintMemory(figure, width));
  view.listeners.push(() => repaint(plot));
  return figure;
}

// Without a timeline: what the plan knows of the peak, as one bar each.
function memoryBar(tier) {
  const kinds = Object.entries(tier.by_kind || {}).filter(([, value]) => value > 0), most = Math.max(tier.capacity_bytes || 0, tier.program_bytes || 0) || 1;
  kinds.sort((a, b) => kindRank(a[0]) - kindRank(b[0]));
  let at = 0;
  const title = `${tierTitle(tier.name)} at its peak: ` + kinds.map(([kind, value]) => `${kind} ${bytes(value)}`).join(', ');
  return html('figure', {class: 'card'}, html('figcaption', {}, html('h3', {}, tierTitle(tier.name)),
    html('output', {}, `${bytes(tier.program_bytes)}` + (tier.capacity_bytes ? ` of ${bytes(tier.capacity_bytes)}` : ''))),
  svg('svg', {viewBox: '0 0 1000 44', preserveAspectRatio: 'none', style: 'height:44px', role: 'img', 'aria-label': title}, svg('title', {}, title),
    svg('rect', {class: 'lane', x: 0, y: 4, width: 1000, height: 36}),
    kinds.map(([kind, value]) => { const rect = svg('rect', {fill: color(kindColor(kind)), x: at, y: 4, width: value / most * 1000, height: 36}); at += value / most * 1000; return rect; })),
  legend(kinds.map(([kind, value]) => [swatch(kindColor(kind)), kind, bytes(value)])));
}

function showMemory(data) {
  const timeline = data.measured || data.predicted, planned = tiersOf(data);
  const drawn = timeline ? timeline.tiers.filter(tier => tier.points.length) : [];
  const figures = drawn.length ? drawn.map(tier => makeMemory(tier, planned.find(other => other.name === tier.name)))
    : planned.filter(tier => tier.program_bytes > 0).map(memoryBar);
  byId('memory').hidden = !figures.length;
  byId('memory-title').textContent = drawn.length ? 'Memory over one step' : "Memory at a step's peak";
  replace(byId('tiers'), html('div', {class: 'stack'}, figures));
}
