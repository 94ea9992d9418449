// Memory over the step: for each tier the kinds on top of one another, with the capacity as a line.
const KIND_ORDER = ['parameters', 'optimizer', 'gradients', 'unreduced', 'cache', 'inputs', 'results', 'activations', 'workspace', 'unused'];
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
  const out = [], last = Math.min(times.length, above(times, stepView.to) + 1);
  for (let i = Math.max(0, above(times, stepView.from) - 1); i < last; i++)
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

function paintMemory(chart, plot, width) {
  const {tier, layers, capacity, peak, times} = chart, height = 190, left = gutter(width), right = width - 4, bottom = height - 24;
  const max = Math.max(peak, tier.program_bytes || 0, isNear(capacity, peak) ? capacity : 0) * 1.08 || 1;
  const x = Object.assign(linear(stepView.from, stepView.to, left, right), {low: left, high: right}), y = linear(0, max, bottom, 8), clip = 'clip-' + tier.name.replace(/\W/g, '');
  const title = `${tierTitle(tier.name)}: at most ${bytes(peak)} of live buffers` + (capacity > 0 ? `, capacity ${bytes(capacity)}` : '');
  const areas = layers.map(layer => svg('path', {fill: color(kindColor(layer.kind)), d:
    path(stepPath(times, layer.high, x, y, stepView.end).concat(stepPath(times, layer.low, x, y, stepView.end).reverse())) + 'Z'}));
  replace(plot, svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title}, svg('title', {}, title),
    svg('clipPath', {id: clip}, svg('rect', {x: left, y: 0, width: right - left, height: bottom})),
    byteTicks(max, 4).map(v => [svg('line', {class: 'grid', x1: left, x2: right, y1: y(v), y2: y(v)}),
      svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, v ? bytes(v) : '0')]),
    timeAxis(x, left, width, bottom),
    svg('g', {'clip-path': `url(#${clip})`}, areas, layers.map(layer => insideLabel(layer, times, x, y, left, right))),
    svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}),
    capacity > 0 && capacity <= max ? [svg('line', {class: 'limit', x1: left, x2: right, y1: y(capacity), y2: y(capacity)}),
      svg('text', {class: 'limit-text', x: right, y: y(capacity) - 5 < 12 ? y(capacity) + 14 : y(capacity) - 5, 'text-anchor': 'end'}, 'capacity ' + bytes(capacity))] : null, cursorLine(8, bottom)));
  Object.assign(plot, {x, scale: width});
}

// The legend has the bytes of each kind: at the peak, or where the pointer is. It keeps its size, so that nothing moves
// under the pointer.
function readMemory(chart, us) {
  const {layers, times} = chart, there = us !== null && us >= stepView.from && us <= stepView.to;
  const i = there ? Math.max(0, above(times, us) - 1) : chart.peakAt, total = layers.length ? layers[layers.length - 1].high[i] : 0;
  chart.output.textContent = there ? `${bytes(total)} at ${tickTime(us, stepView.to - stepView.from)}` : chart.rest;
  chart.when.textContent = there ? 'Here:' : 'At the peak:';
  layers.forEach((layer, k) => { chart.values[k].textContent = bytes(layer.high[i] - layer.low[i]); });
}

// A capacity that would leave the memory in use too flat to be read is told, not drawn.
const isNear = (capacity, bytes) => capacity > 0 && capacity <= 2.5 * bytes;

function makeMemory(tier, planned) {
  const layers = stack(tier), times = tier.points.map(point => point[0]), top = layers[layers.length - 1], capacity = planned ? planned.capacity_bytes : 0;
  const peak = top ? top.high.reduce((a, b) => Math.max(a, b), 0) : 0, at = top ? top.high.indexOf(peak) : 0;
  const chart = {tier, layers, times, peak, capacity, peakAt: at, output: html('output', {}), when: html('span', {}), values: layers.map(() => html('b', {}))};
  chart.rest = `peak ${bytes(peak)}` + (tier.program_bytes ? `; arena ${bytes(tier.program_bytes)}` : '') + (capacity > 0 && !isNear(capacity, peak) ? `; ${bytes(capacity)} available` : '');
  const plot = makePlot(stepView, tierTitle(tier.name) + ' over the step; arrow keys move, plus and minus zoom', (node, width) => paintMemory(chart, node, width));
  stepView.cursors.push(us => readMemory(chart, us));
  readMemory(chart, null);
  const shown = layers.map((layer, k) => [layer, chart.values[k]]).filter(([layer]) => Math.max(...layer.high.map((value, i) => value - layer.low[i])) > 1e-3 * peak).reverse();
  return html('div', {class: 'next'}, html('div', {class: 'caption'}, html('h3', {}, tierTitle(tier.name)), chart.output), plot,
    fill(legend([[chart.when, '']].concat(shown.map(([layer, value]) => [swatch(kindColor(layer.kind)), [layer.kind + ' ', value]]), isNear(capacity, peak) ? [[html('i', {class: 'dash'}), 'capacity']] : [])), {class: 'legend even'}, []));
}
const makeMemories = data => mainTimeline(data).tiers.filter(tier => tier.points.length).map(tier => makeMemory(tier, tiersOf(data).find(other => other.name === tier.name)));

// What a tier holds at its peak, as one bar: as long as the capacity, or, where that is far more, as the arena.
const barBytes = tier => (isNear(tier.capacity_bytes, tier.program_bytes) ? tier.capacity_bytes : tier.program_bytes) || 1;
function kindsBar(tier, height) {
  const kinds = Object.entries(tier.by_kind || {}).filter(([, value]) => value > 0).sort((a, b) => kindRank(a[0]) - kindRank(b[0])), max = barBytes(tier);
  const title = `${tierTitle(tier.name)} at its peak: ` + (kinds.map(([kind, value]) => `${kind} ${bytes(value)}`).join(', ') || bytes(tier.program_bytes));
  let at = 0;
  const part = (name, value) => { const rect = svg('rect', {fill: color(name), x: px(at), y: 0, width: px(value / max * 1000), height}); at += value / max * 1000; return rect; };
  return svg('svg', {class: 'kinds', viewBox: `0 0 1000 ${height}`, preserveAspectRatio: 'none', style: `height:${height}px`, role: 'img', 'aria-label': title}, svg('title', {}, title),
    svg('rect', {class: 'lane', x: 0, y: 0, width: 1000, height}), kinds.length ? kinds.map(([kind, value]) => part(kindColor(kind), value)) : part('accent', tier.program_bytes));
}
const tierUse = tier => !tier.capacity_bytes ? 'known before the first step' : isNear(tier.capacity_bytes, tier.program_bytes)
  ? `${percent(tier.program_bytes / tier.capacity_bytes)} of ${bytes(tier.capacity_bytes)}` : `of ${bytes(tier.capacity_bytes)} available`;

// Without a timeline: what the plan knows of the peak.
function memoryBar(tier) {
  const kinds = Object.entries(tier.by_kind || {}).filter(([, value]) => value > 0).sort((a, b) => kindRank(a[0]) - kindRank(b[0]));
  return html('figure', {class: 'card'}, html('figcaption', {}, html('h3', {}, tierTitle(tier.name)), html('output', {}, `${bytes(tier.program_bytes)}, ${tierUse(tier)}`)),
    kindsBar(tier, 36), legend(kinds.map(([kind, value]) => [swatch(kindColor(kind)), kind, bytes(value)])));
}
