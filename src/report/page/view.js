// The part of the step that is shown: one for the timeline and the memory above it. Zooming keeps what is under the
// pointer or between the fingers where it is.
const view = {from: 0, to: 1, end: 1, least: 1, listeners: []};

function setView(from, to) {
  const span = Math.min(view.end, Math.max(view.least, to - from));
  from = Math.max(0, Math.min(view.end - span, from + (to - from - span) / 2));
  view.from = from, view.to = from + span;
  if (!view.waiting) view.waiting = requestAnimationFrame(() => { view.waiting = 0; view.listeners.forEach(paint => paint()); });
}
const zoomBy = (factor, at) => setView(at - (at - view.from) * factor, at + (view.to - at) * factor);
const panBy = part => setView(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
const wholeView = () => setView(0, view.end);
const middle = () => (view.from + view.to) / 2;

// A step of another length shows all of it; the same step stays where it is.
function openView(end) {
  if (Math.abs(end - view.end) > 1e-6 * end) Object.assign(view, {from: 0, to: end, end, least: Math.max(end * 1e-6, 0.5)});
}

function zoomKeys(event) {
  const act = {ArrowLeft: () => panBy(-0.1), ArrowRight: () => panBy(0.1), '+': () => zoomBy(0.7, middle()), '=': () => zoomBy(0.7, middle()),
    '-': () => zoomBy(1 / 0.7, middle()), '0': wholeView, Home: () => setView(0, view.to - view.from), End: () => setView(view.end - view.to + view.from, view.end)}[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey && event.key.startsWith('Arrow')) return;
  act();
  event.preventDefault();
}

// `timeAt` gives the time at a clientX; `tap` is called where a press did not move.
function makeZoomable(node, timeAt, tap) {
  const held = new Map();
  let moved = 0;
  node.classList.add('zoomable');
  node.addEventListener('wheel', event => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== node) return; // the page scrolls
    event.preventDefault();
    if (sideways) panBy((event.deltaX || event.deltaY) / 1000);
    else zoomBy(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), timeAt(event.clientX));
  }, {passive: false});
  node.addEventListener('pointerdown', event => {
    if (event.button > 0) return;
    held.set(event.pointerId, event.clientX), moved = held.size > 1 ? 100 : 0;
    node.classList.add('held');
  });
  node.addEventListener('pointermove', event => {
    if (!held.has(event.pointerId)) return;
    const before = [...held.values()], was = before.map(timeAt);
    moved += Math.abs(event.clientX - held.get(event.pointerId));
    if (moved > 4 && !node.hasPointerCapture(event.pointerId)) node.setPointerCapture(event.pointerId);
    held.set(event.pointerId, event.clientX);
    const now = [...held.values()], per = timeAt(1) - timeAt(0);
    if (held.size === 1) setView(view.from + was[0] - timeAt(now[0]), view.to + was[0] - timeAt(now[0]));
    else if (Math.abs(now[0] - now[1]) > 8) {
      const scale = (was[0] - was[1]) / (now[0] - now[1]) / per, centre = timeAt((now[0] + now[1]) / 2), wasCentre = (was[0] + was[1]) / 2;
      setView(wasCentre - (centre - view.from) * Math.abs(scale), wasCentre + (view.to - centre) * Math.abs(scale));
    }
  });
  const release = event => {
    if (held.delete(event.pointerId) && event.type === 'pointerup' && moved <= 4) tap(event);
    if (!held.size) node.classList.remove('held');
  };
  ['pointerup', 'pointercancel', 'pointerleave'].forEach(name => node.addEventListener(name, release));
  node.addEventListener('dblclick', event => zoomBy(0.4, timeAt(event.clientX)));
  node.addEventListener('keydown', zoomKeys);
}

function timeAxis(x, from, width, y) {
  const wanted = Math.max(2, Math.min(10, (width - from) / (width < 500 ? 62 : 90)));
  return x.ticks(wanted).map(us => [svg('line', {class: 'grid', x1: x(us), x2: x(us), y1: 0, y2: y}),
    svg('text', {x: x(us), y: y + 15, 'text-anchor': x(us) > width - 30 ? 'end' : 'middle'}, us === 0 ? '0' : tickTime(us, view.to - view.from))]);
}
// Enough digits to tell neighbours apart.
function tickTime(us, span) {
  const [unit, name] = us >= 1e6 ? [1e6, 's'] : us >= 1e3 ? [1e3, 'ms'] : [1, 'µs'];
  return (us / unit).toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(span / unit) + 1)))).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '') + '\u00a0' + name;
}
