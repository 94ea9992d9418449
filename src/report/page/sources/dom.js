// Elements. Texts become text nodes only, so nothing that a file holds is ever read as HTML.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  for (const child of children.flat(3)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const byId = id => document.getElementById(id);
const replace = (node, ...children) => { node.replaceChildren(...children.flat(3).filter(child => child)); return node; };
const color = name => `var(--${name})`;

function table(heads, rows) {
  const kind = head => head.startsWith('#') ? 'number' : null;
  return html('div', {class: 'scroll'}, html('table', {},
    html('thead', {}, html('tr', {}, heads.map(head => html('th', {scope: 'col', class: kind(head)}, head.replace('#', ''))))),
    html('tbody', {}, rows.map(row => html('tr', {class: row.chosen ? 'chosen' : null},
      row.map((cell, i) => html('td', {class: kind(heads[i]), 'data-head': heads[i].replace('#', '')}, cell)))))));
}
const legend = entries => html('ul', {class: 'legend'}, entries.map(([sign, text, value]) =>
  html('li', {}, sign, text, value ? [' ', html('b', {}, value)] : null)));
const swatch = name => html('i', {style: `background:${color(name)}`});

// Draws again when the width changes: texts keep their size on every screen. A drawing has space for its axes at least.
const WIDTH_MIN = 160;
const painters = new Map();
const sizes = new ResizeObserver(entries => {
  for (const entry of entries) {
    const painter = painters.get(entry.target), width = entry.contentRect.width > 0 ? Math.max(WIDTH_MIN, Math.round(entry.contentRect.width)) : 0;
    if (painter && width > 0 && width !== painter.width) painter.width = width, requestAnimationFrame(() => painter.paint(width));
  }
});
function onWidth(node, paint) {
  painters.set(node, {paint, width: 0});
  sizes.observe(node);
}
const repaint = node => { const painter = painters.get(node); if (painter && painter.width) painter.paint(painter.width); };
