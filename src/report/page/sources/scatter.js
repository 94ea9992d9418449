// Time against memory: each policy that the search simulated, with the chosen one marked. Pointing at one says in what
// it differs.
const MARKS = {
  device: [() => svg('circle', {r: 4.5}), 'all in device memory'],
  host: [() => svg('rect', {x: -4, y: -4, width: 8, height: 8}), 'uses host memory'],
  disk: [() => svg('path', {d: 'M0-5.5L5.2 4H-5.2Z'}), 'uses the disk'],
  both: [() => svg('path', {d: 'M0-5.8L5.8 0L0 5.8L-5.8 0Z'}), 'uses host memory and the disk'],
};
const markOf = policy => { const used = tiersUsed(policy); return used.host && used.disk ? 'both' : used.host ? 'host' : used.disk ? 'disk' : 'device'; };
const isPlain = row => row && typeof row === 'object' && row.policy && typeof row.policy === 'object' && known(row.device_bytes);

// What the plan knows of others: all that were tried, in older files those that it lists. The chosen first.
function triedOf(data) {
  const plan = data.plan, same = row => JSON.stringify(row.policy) === JSON.stringify(plan.policy), device = tiersOf(data).find(tier => tier.name === 'device');
  const all = (plan.tried && plan.tried.length ? plan.tried : [].concat(plan.runners_up || [], plan.pareto_front || [])).filter(isPlain);
  const time = firstKnown(plan.step_s, predictedStep(data)), seen = new Set();
  if (!all.some(row => known(row.step_s)) || !device || !known(time)) return null;
  const of = name => (tiersOf(data).find(tier => tier.name === name) || {}).program_bytes || 0;
  const chosen = {policy: plan.policy, step_s: time, device_bytes: device.program_bytes, host_bytes: of('host'), disk_bytes: of('disk'), chosen: true};
  const others = all.filter(row => !same(row) && !seen.has(JSON.stringify(row.policy)) && seen.add(JSON.stringify(row.policy)));
  return {chosen, capacity: device.capacity_bytes, points: [chosen, ...others.filter(row => known(row.step_s)).sort((a, b) => a.step_s - b.step_s)], large: others.filter(row => !known(row.step_s))};
}

const against = (row, chosen) => row.step_s === chosen.step_s ? '' : (row.step_s < chosen.step_s ? '−' : '+') + percent(Math.abs(row.step_s / chosen.step_s - 1));
function pointText(row, chosen) {
  const below = [['host', row.host_bytes], ['disk', row.disk_bytes]].filter(([, value]) => value > 0).map(([name, value]) => `${bytes(value)} ${name === 'host' ? 'of host memory' : 'on the disk'}`);
  const figures = `${seconds(row.step_s)} a step${row.chosen ? '' : ` (${against(row, chosen)})`}, ` + [bytes(row.device_bytes) + ' of device memory', ...below].join(', ');
  return row.chosen ? ['This plan', figures] : [capital(differences(row.policy, chosen.policy).join('; ')), figures];
}

function paintScatter(chart, width) {
  const {points, chosen, capacity, large} = chart.tried, height = 300, left = 66, right = width - 12, bottom = height - 40, top = 14;
  const xs = points.map(p => p.device_bytes), near = capacity > 0 && capacity <= 1.6 * Math.max(...xs), ys = points.map(p => p.step_s);
  const lowX = Math.min(...xs), highX = Math.max(...xs, near ? capacity : 0), padX = 0.06 * (highX - lowX) || 0.1 * highX || 1, padY = 0.08 * (Math.max(...ys) - Math.min(...ys)) || 0.1 * ys[0];
  const x = linear(Math.max(0, lowX - padX), highX + padX, left, right), y = linear(Math.max(0, Math.min(...ys) - padY), Math.max(...ys) + padY, bottom, top);
  let min = Infinity;
  const front = points.filter(p => p.device_bytes < min && (min = p.device_bytes, true)).map(p => [x(p.device_bytes), y(p.step_s)]);
  const title = `Time against memory of ${plural(points.length, 'policy').replace('policys', 'policies')}: this plan takes ${seconds(chosen.step_s)} and ${bytes(chosen.device_bytes)} of device memory`;
  const mark = p => { const node = MARKS[markOf(p.policy)][0](); return fill(node, {class: 'dot-' + (p.chosen ? 'chosen' : 'other'), transform: `translate(${px(x(p.device_bytes))} ${px(y(p.step_s))})` + (p.chosen ? ' scale(1.5)' : '')}, []); };
  const at = chart.at === undefined ? null : points[chart.at], label = x(chosen.device_bytes) > width - 100;
  replace(chart.plot, svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title}, svg('title', {}, title),
    y.ticks(5).map(v => [svg('line', {class: 'grid', x1: left, x2: right, y1: y(v), y2: y(v)}), svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, seconds(v))]),
    byteTicksBetween(lowX - padX, highX + padX, Math.min(8, width / 75)).map(v => [svg('line', {class: 'grid', x1: x(v), x2: x(v), y1: top, y2: bottom}), svg('text', {x: x(v), y: bottom + 15, 'text-anchor': 'middle'}, bytes(v))]),
    svg('text', {x: (left + right) / 2, y: height - 6, 'text-anchor': 'middle'}, 'device memory at its peak'), svg('text', {x: left + 6, y: top + 4}, 'predicted step'),
    near ? [svg('line', {class: 'limit', x1: x(capacity), x2: x(capacity), y1: top, y2: bottom}), svg('text', {class: 'limit-text', x: x(capacity) - 5, y: top + 4, 'text-anchor': 'end'}, 'capacity ' + bytes(capacity))] : null,
    svg('path', {class: 'front', d: path(front)}), points.slice(1).map(mark), mark(chosen),
    svg('text', {class: 'head halo', x: x(chosen.device_bytes) + (label ? -12 : 12), y: y(chosen.step_s) + (y(chosen.step_s) > bottom - 20 ? -8 : 18), 'text-anchor': label ? 'end' : 'start'}, 'this plan'),
    at ? svg('circle', {class: 'picked', cx: x(at.device_bytes), cy: y(at.step_s), r: 9}) : null));
  Object.assign(chart, {x, y, scale: width});
}
function byteTicksBetween(low, high, wanted) {
  let step = 1;
  while ((high - low) / step > wanted) step *= 2;
  const out = [];
  for (let at = Math.ceil(Math.max(0, low) / step) * step; at <= high; at += step) out.push(at);
  return out;
}

function pointScatter(chart, at) {
  chart.at = at;
  chart.line.textContent = at === undefined ? chart.hint : pointText(chart.tried.points[at], chart.tried.chosen).join('. ') + '.';
  repaint(chart.plot);
}

function makeScatter(data) {
  const tried = triedOf(data);
  if (!tried) return null;
  const {points, chosen, large} = tried, chart = {tried, plot: html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': 'Time against memory; arrow keys go from plan to plan'})};
  const kinds = Object.keys(MARKS).filter(kind => points.some(p => markOf(p.policy) === kind));
  chart.hint = 'Point at a mark, tap it, or press the arrow keys: what differs from this plan.';
  chart.line = html('p', {class: 'detail-line', role: 'status'}, chart.hint);
  const find = event => {
    const box = chart.plot.getBoundingClientRect(), zoom = chart.scale / box.width, px = (event.clientX - box.left) * zoom, py = (event.clientY - box.top) * zoom;
    const away = points.map(p => Math.hypot(chart.x(p.device_bytes) - px, chart.y(p.step_s) - py)), best = away.indexOf(Math.min(...away));
    return away[best] < 28 ? best : undefined;
  };
  ['pointermove', 'pointerdown'].forEach(name => chart.plot.addEventListener(name, event => { const at = find(event); if (at !== undefined && at !== chart.at) pointScatter(chart, at); }));
  chart.plot.addEventListener('keydown', event => {
    const by = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    if (event.key === 'Escape') pointScatter(chart, undefined);
    if (!by) return;
    pointScatter(chart, chart.at === undefined ? 0 : Math.max(0, Math.min(points.length - 1, chart.at + by)));
    event.preventDefault();
  });
  onWidth(chart.plot, width => paintScatter(chart, width));
  const search = data.plan.search, sign = kind => svg('svg', {class: 'sign', viewBox: '-7 -7 14 14'}, fill(MARKS[kind][0](), {class: 'dot-other'}, []));
  const rows = points.map(p => Object.assign([p.chosen ? 'This plan' : capital(differences(p.policy, chosen.policy).join('; ')), seconds(p.step_s), p.chosen ? '' : against(p, chosen), bytes(p.device_bytes), p.host_bytes ? bytes(p.host_bytes) : '', p.disk_bytes ? bytes(p.disk_bytes) : ''], {chosen: p.chosen}));
  const heads = ['What differs from this plan', '#Step', '#Against this', '#Device', '#Host', '#Disk'], used = heads.map((head, i) => i < 4 || rows.some(row => row[i]));
  const keep = cells => Object.assign(cells.filter((cell, i) => used[i]), {chosen: cells.chosen});
  return html('figure', {class: 'card'}, html('figcaption', {}, html('h3', {}, 'Time against memory'), html('output', {}, search ? searchWords(search) : '')), chart.plot,
    legend(kinds.map(kind => [sign(kind), MARKS[kind][1]]).concat([[html('i', {class: 'dash front'}), 'least time for the memory']])), chart.line,
    large.length ? html('p', {class: 'note'}, `${large.length} more ${large.length === 1 ? 'was' : 'were'} compiled and did not fit.`) : null,
    html('details', {}, html('summary', {}, 'As a table'), table(keep(heads), rows.map(keep))));
}
const searchWords = search => `${whole(search.enumerated)} policies considered, ${whole(search.compiled)} compiled and simulated; ` + (search.proved ? 'none of the others can be faster' : 'others might be faster and were not tried');
