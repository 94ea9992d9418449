// The part of an axis that is shown, shared by all drawings on it. Zooming keeps what is under the pointer or between the
// fingers where it is; pointing at one drawing moves the cursor of all.
const makeView = () => ({begin: 0, end: 1, from: 0, to: 1, min: 1, at: null, listeners: [], cursors: []});
const stepView = makeView(), trainView = makeView();

function setView(view, from, to) {
  const span = Math.min(view.end - view.begin, Math.max(view.min, to - from));
  from = Math.max(view.begin, Math.min(view.end - span, from + (to - from - span) / 2));
  view.from = from, view.to = from + span;
  if (!view.waiting) view.waiting = requestAnimationFrame(() => { view.waiting = 0; view.listeners.forEach(paint => paint()); });
}
const zoomBy = (view, factor, at) => setView(view, at - (at - view.from) * factor, at + (view.to - at) * factor);
const panBy = (view, part) => setView(view, view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
const wholeView = view => setView(view, view.begin, view.end);
const middle = view => (view.from + view.to) / 2;
const isWhole = view => view.to - view.from > (view.end - view.begin) * 0.9999;

// An axis of another length shows all of it; the same one stays where it is. One that grows is followed where it was whole.
function openView(view, begin, end, min) {
  const same = view.begin === begin && Math.abs(end - view.end) <= 1e-6 * Math.abs(end), grows = view.begin === begin && end > view.end && !isWhole(view);
  if (!same) Object.assign(view, {begin, end, min}, grows ? {} : {from: begin, to: end});
}
function pointAt(view, at) {
  view.at = at;
  view.cursors.forEach(move => move(at));
}

function zoomKeys(view, event) {
  const act = {ArrowLeft: () => panBy(view, -0.1), ArrowRight: () => panBy(view, 0.1), '+': () => zoomBy(view, 0.7, middle(view)), '=': () => zoomBy(view, 0.7, middle(view)),
    '-': () => zoomBy(view, 1 / 0.7, middle(view)), '0': () => wholeView(view), Home: () => setView(view, view.begin, view.begin + view.to - view.from),
    End: () => setView(view, view.end - view.to + view.from, view.end)}[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key.startsWith('Arrow')) return;
  act();
  event.preventDefault();
}

// `valueAt` gives the axis' value at a clientX; `tap` is called where a press did not move.
function makeZoomable(view, node, valueAt, tap) {
  const held = new Map();
  let moved = 0;
  node.classList.add('zoomable');
  node.addEventListener('wheel', event => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== node) return; // the page scrolls
    event.preventDefault();
    if (sideways) panBy(view, (event.deltaX || event.deltaY) / 1000);
    else zoomBy(view, Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), valueAt(event.clientX));
  }, {passive: false});
  node.addEventListener('pointerdown', event => {
    if (event.button > 0) return;
    held.set(event.pointerId, event.clientX), moved = held.size > 1 ? 100 : 0;
    node.classList.add('held');
  });
  node.addEventListener('pointermove', event => {
    if (!held.has(event.pointerId)) return;
    const before = [...held.values()], was = before.map(valueAt);
    moved += Math.abs(event.clientX - held.get(event.pointerId));
    if (moved > 4 && !node.hasPointerCapture(event.pointerId)) node.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event.clientX);
    const now = [...held.values()], per = valueAt(1) - valueAt(0);
    if (held.size === 1) setView(view, view.from + was[0] - valueAt(now[0]), view.to + was[0] - valueAt(now[0]));
    else if (Math.abs(now[0] - now[1]) > 8) {
      const scale = (was[0] - was[1]) / (now[0] - now[1]) / per, centre = valueAt((now[0] + now[1]) / 2), wasCentre = (was[0] + was[1]) / 2;
      setView(view, wasCentre - (centre - view.from) * Math.abs(scale), wasCentre + (view.to - centre) * Math.abs(scale));
    }
  });
  const release = event => {
    if (held.delete(event.pointerId) && event.type === 'pointerup' && moved <= 4) tap(event);
    if (!held.size) node.classList.remove('held');
  };
  ['pointerup', 'pointercancel', 'pointerleave'].forEach(name => node.addEventListener(name, release));
  node.addEventListener('dblclick', event => zoomBy(view, 0.4, valueAt(event.clientX)));
  node.addEventListener('keydown', event => zoomKeys(view, event));
}

const button = (text, label, act) => {
  const node = html('button', {type: 'button', 'aria-label': label}, text);
  node.addEventListener('click', act);
  return node;
};
const zoomButtons = (view, all, label) => html('div', {class: 'buttons'}, button('−', 'Zoom out', () => zoomBy(view, 2, middle(view))),
  button('+', 'Zoom in', () => zoomBy(view, 0.5, middle(view))), button(all, label, () => wholeView(view)));
const ZOOM_HINT = 'Drag to move; pinch, or click and turn the wheel, or press + and − to zoom.';

// A drawing on a view's axis: `paint(plot)` draws and sets plot.x (value to pixel) and plot.scale (its width).
function makePlot(view, label, paint, tap) {
  const plot = html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': label});
  const valueAt = clientX => { const box = plot.getBoundingClientRect(); return plot.x.invert((clientX - box.left) / box.width * plot.scale); };
  makeZoomable(view, plot, valueAt, tap || (event => pointAt(view, valueAt(event.clientX))));
  plot.addEventListener('pointermove', event => { if (!plot.classList.contains('held')) pointAt(view, valueAt(event.clientX)); });
  plot.addEventListener('pointerleave', () => pointAt(view, null));
  onWidth(plot, width => { paint(plot, width); moveCursor(plot, view.at); });
  view.listeners.push(() => repaint(plot));
  view.cursors.push(at => moveCursor(plot, at));
  return plot;
}
function moveCursor(plot, at) {
  const line = plot.querySelector('.cursor');
  if (!line) return;
  const x = at === null ? -1 : plot.x(at), shown = at !== null && x >= plot.x.low - 0.5 && x <= plot.x.high + 0.5;
  fill(line, shown ? {x1: px(x), x2: px(x), visibility: 'visible'} : {visibility: 'hidden'}, []);
}
const cursorLine = (top, bottom) => svg('line', {class: 'cursor', y1: top, y2: bottom, visibility: 'hidden'});
