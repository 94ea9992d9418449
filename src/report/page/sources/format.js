// Numbers as people read them.
const known = value => typeof value === 'number' && isFinite(value);
const whole = value => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ' '); // 12 345

function digits(value, count) {
  if (!known(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(count > 2 ? 2 : 1).replace('e+', 'e');
  const text = value.toPrecision(Math.max(count, Math.min(8, Math.floor(Math.log10(size || 1)) + 1)));
  return Math.abs(value) >= 10000 ? whole(value) : text;
}
const units = (value, list, base, count) => {
  let i = 0;
  while (i < list.length - 1 && Math.abs(value) >= base * 0.9995) value /= base, i++;
  return (i === 0 && list[0] === 'B' || Math.abs(value) >= 1000 ? whole(value) : value.toPrecision(Math.abs(value) >= 100 ? Math.max(3, count) : count)) + '\u00a0' + list[i];
};
const bytes = value => known(value) ? units(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], 1024, 3) : '–';
const amount = value => !known(value) ? '–' : Math.abs(value) < 10000 ? whole(value) : units(value, ['', 'K', 'M', 'G', 'T'], 1000, 3);
const percent = value => known(value) ? (value > 0 && value < 5e-4 ? '<0.1%' : (100 * value).toFixed(Math.abs(value) < 0.0995 ? 1 : 0) + '%') : '–';
const capital = text => text ? text[0].toUpperCase() + text.slice(1) : text;
const plural = (count, noun, nouns = noun + 's') => whole(count) + ' ' + (count === 1 ? noun : nouns);

function seconds(value) {
  if (!known(value)) return '–';
  const size = Math.abs(value);
  if (size >= 172800) return (value / 86400).toPrecision(3) + '\u00a0days';
  if (size >= 5400) return (value / 3600).toPrecision(3) + '\u00a0h';
  if (size >= 120) return (value / 60).toPrecision(3) + '\u00a0min';
  if (size >= 1) return value.toPrecision(3) + '\u00a0s';
  if (size >= 1e-3) return (value * 1e3).toPrecision(3) + '\u00a0ms';
  return size === 0 ? '0 s' : (value * 1e6).toPrecision(3) + '\u00a0µs';
}
const list = words => words.length < 2 ? words.join('') : words.slice(0, -1).join(', ') + ' and ' + words[words.length - 1];
