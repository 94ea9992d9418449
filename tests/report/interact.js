// Appended to a page by test_browser.sh: does what a reader does. What is wrong is written to the console, which fails the test.
function expect(holds, what) { if (!holds) console.error('not so: ' + what); }
const span = () => view.to - view.from;
const press = (node, key, more) => node.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true, ...more}));
const point = (node, type, x, y) => node.dispatchEvent(new PointerEvent(type, {pointerId: 1, clientX: x, clientY: y, button: 0, bubbles: true}));

function zoomAndMove(plot) {
  const box = plot.getBoundingClientRect(), x = box.left + box.width / 2, y = box.top + box.height / 2, paths = plot.innerHTML;
  press(plot, '+');
  expect(span() < 0.8 * view.end, 'plus zooms in');
  const from = view.from;
  press(plot, 'ArrowRight');
  expect(view.from > from, 'an arrow moves');
  plot.dispatchEvent(new WheelEvent('wheel', {deltaY: -200, clientX: x, clientY: y, ctrlKey: true, bubbles: true, cancelable: true}));
  expect(span() < 0.6 * view.end, 'the wheel zooms in');
  view.listeners.forEach(paint => paint());
  expect(plot.innerHTML !== paths, 'zooming draws another picture');
  press(plot, '0');
  expect(span() === view.end, '0 shows the whole step');
}

function readEvents(plot) {
  const line = document.querySelector('.detail-line'), hint = line.textContent;
  press(plot, 'ArrowRight', {shiftKey: true});
  expect(line.textContent !== hint, 'Shift with an arrow reads an event');
  const said = line.textContent, first = plot.querySelector('.lane').getBoundingClientRect();
  point(plot, 'pointerdown', first.left + 0.6 * first.width, first.top + 4);
  point(plot, 'pointerup', first.left + 0.6 * first.width, first.top + 4);
  expect(line.textContent !== said, 'a tap reads the event under it');
}

function print() {
  const closed = () => document.querySelectorAll('details:not([open])').length, before = closed();
  expect(before > 0, 'there are closed tables');
  setView(0, view.end / 8);
  dispatchEvent(new Event('beforeprint'));
  expect(closed() === 0, 'tables are open on paper');
  expect(span() === view.end, 'paper has the whole step');
  dispatchEvent(new Event('afterprint'));
  expect(closed() === before && span() === view.end / 8, 'after printing all is as it was');
}

function goThrough() {
  const plot = byId('timeline').querySelector('.zoomable');
  if (!plot.querySelector('svg')) return setTimeout(goThrough, 20); // drawn once its width is known
  expect(document.documentElement.scrollWidth <= innerWidth, `nothing is wider than ${innerWidth}: ${document.documentElement.scrollWidth}`);
  zoomAndMove(plot);
  readEvents(plot);
  print();
  document.title = 'interacted';
}
goThrough();
