// From values to pixels, with ticks at round numbers.
function ticks(from, to, wanted, whole) {
  const span = to - from || 1, power = Math.pow(10, Math.floor(Math.log10(span / Math.max(1, wanted))));
  let step = [1, 2, 5, 10].map(n => n * power).find(n => span / n <= wanted) || 10 * power;
  if (whole) step = Math.max(1, step);
  const out = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * span; i++) out.push(i * step);
  return out;
}
// Bytes go up in powers of two.
function byteTicks(max, wanted) {
  let step = 1;
  while (max / step > wanted) step *= 2;
  const out = [];
  for (let at = 0; at <= max; at += step) out.push(at);
  return out;
}
function linear(from, to, low, high) {
  const scale = value => low + (value - from) / (to - from || 1) * (high - low);
  scale.invert = pixel => from + (pixel - low) / (high - low || 1) * (to - from);
  scale.ticks = (wanted, whole) => ticks(from, to, wanted, whole);
  return scale;
}
function logarithmic(from, to, low, high) {
  const inner = linear(Math.log10(from), Math.log10(to), low, high), scale = value => inner(Math.log10(value));
  scale.invert = pixel => Math.pow(10, inner.invert(pixel));
  scale.ticks = wanted => { // 1, 2 and 5 of each power of ten; within less than one, round numbers
    const out = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power++) for (const n of [1, 2, 5]) out.push(n * Math.pow(10, power));
    const inside = out.filter(value => value >= from * 0.999 && value <= to * 1.001), powers = inside.filter(value => Math.abs(Math.log10(value) % 1) < 1e-9);
    return inside.length < 3 ? ticks(from, to, wanted) : inside.length > 2 * wanted ? powers : inside;
  };
  return scale;
}
const px = value => Math.round(value * 10) / 10;
const path = points => points.map((point, i) => (i ? 'L' : 'M') + px(point[0]) + ' ' + px(point[1])).join('');
// The first index whose value is above `value`.
function above(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}
