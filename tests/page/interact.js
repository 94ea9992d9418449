// Appended to a page by test_browser.sh: does what a reader does. What is wrong is written to the console, which fails the test.
function expect(holds, what) { if (!holds) console.error('not so: ' + what); }
const span = view => view.to - view.from;
const press = (node, key, more) => node.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true, ...more}));
const point = (node, type, x, y) => node.dispatchEvent(new PointerEvent(type, {pointerId: 1, clientX: x, clientY: y, button: 0, bubbles: true}));
const change = (node, value) => { node.value = value; node.dispatchEvent(new Event(node.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true})); };
const paint = view => view.listeners.forEach(listener => listener());
const inMiddle = node => { const box = node.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; };

function zoomAndMove(view, plot, others) {
  const [x, y] = inMiddle(plot), paths = plot.innerHTML, all = others.map(other => other.innerHTML), whole = span(view);
  press(plot, '+');
  expect(span(view) < 0.8 * whole, 'plus zooms in');
  const from = view.from;
  press(plot, 'ArrowRight');
  expect(view.from > from, 'an arrow moves');
  plot.dispatchEvent(new WheelEvent('wheel', {deltaY: -200, clientX: x, clientY: y, ctrlKey: true, bubbles: true, cancelable: true}));
  expect(span(view) < 0.6 * whole, 'the wheel zooms in');
  paint(view);
  expect(plot.innerHTML !== paths, 'zooming draws another picture');
  others.forEach((other, i) => expect(other.innerHTML !== all[i], 'drawings of one axis zoom together'));
  press(plot, '0');
  expect(span(view) === whole, '0 shows all');
  paint(view);
}

// What is pointed at stays where it is, whatever is said of it.
function stays(plots) {
  for (const plot of plots) {
    const box = () => JSON.stringify(plots.map(other => other.getBoundingClientRect())), before = box();
    for (const part of [0.2, 0.5, 0.9]) {
      const {left, top, width, height} = plot.getBoundingClientRect();
      point(plot, 'pointermove', left + part * width, top + part * height);
      expect(box() === before, 'nothing moves under the pointer');
    }
    point(plot, 'pointerleave', 0, 0);
  }
}

// The cursor of all drawings is where the pointer is in one, at the same place of the axis.
function cursors(view, plots) {
  point(plots[0], 'pointermove', ...inMiddle(plots[0].querySelector('svg')));
  const at = plots.map(plot => { const line = plot.querySelector('.cursor'); return line.getAttribute('visibility') === 'visible' ? plot.x.invert(+line.getAttribute('x1')) : null; });
  at.forEach(value => expect(value !== null && Math.abs(value - at[0]) < 0.01 * span(view), 'one cursor in all drawings: ' + at));
  point(plots[0], 'pointerleave', 0, 0);
  expect(plots.every(plot => plot.querySelector('.cursor').getAttribute('visibility') === 'hidden'), 'the cursor goes with the pointer');
}

const fills = plot => new Set([...plot.querySelectorAll('path')].map(node => node.getAttribute('fill')).filter(fill => fill));
function schedule(data, plot) {
  const main = mainTimeline(data), shown = fills(plot);
  const has = name => shown.has(`var(--${name})`);
  expect(has('forward') && has('backward'), 'forward and backward are in the schedule');
  if (!main.moves) return; // an older version's timeline
  expect(has('recomputation') === main.phases.includes('recomputation') && has('recomputation'), 'what is computed again has a colour');
  const moved = new Set(main.events.filter(event => /copy|disk/.test(main.streams[event[EVENT.stream]].role)).map(event => main.moves[event[EVENT.name]]));
  expect(moved.size > 0, 'something is copied');
  moved.forEach(kind => expect(has(kind), 'copies have the colour of what they copy: ' + kind));
  expect([...plot.querySelectorAll('text')].some(node => node.textContent === main.blocks[0]), 'the first block is named');
}

function readEvents(data, plot) {
  const line = document.querySelector('.step .detail-line'), hint = line.textContent;
  press(plot, 'ArrowRight', {shiftKey: true});
  expect(line.textContent !== hint, 'Shift with an arrow reads an event');
  const before = line.textContent, compute = sourcesOf(data)[0][1].events.filter(event => event[EVENT.stream] === 0), longest = compute.reduce((a, b) => a[EVENT.length] > b[EVENT.length] ? a : b);
  const place = () => {
    const box = plot.getBoundingClientRect(), lane = plot.querySelector('.lane').getBoundingClientRect();
    return [box.left + plot.x(longest[EVENT.start] + longest[EVENT.length] / 2) * box.width / plot.scale, lane.top + 4];
  };
  point(plot, 'pointerdown', ...place());
  point(plot, 'pointerup', ...place());
  expect(line.textContent !== before, 'a tap reads the event under it');
  if (!mainTimeline(data).moves) return expect(!/[Ww]aited|Began/.test(line.textContent), 'what is not known is not said');
  expect(/Waited|Began/.test(line.textContent), 'it says what the event waited for: ' + line.textContent);
  const picked = line.textContent;
  for (let i = 0; i < 40 && !document.querySelector('.cause'); i++) press(plot, 'ArrowRight', {shiftKey: true}), paint(stepView);
  expect(document.querySelector('svg .cause'), 'what it waited for is marked');
  line.querySelector('button').click();
  expect(line.textContent !== picked, 'the button leads there');
  paint(stepView);
  point(plot, 'pointermove', ...place());
  const tip = document.querySelector('.tip');
  expect(!tip.hidden && /Waited|Began/.test(tip.textContent), 'pointing shows what it waited for');
  press(plot, 'Escape');
}

function curves(data) {
  const plots = [...document.querySelectorAll('.charts .chart')], loss = plots[0], line = () => loss.querySelector('.line:not(.faint):not(.second):not(.other)').getAttribute('d');
  zoomAndMove(trainView, loss, plots.slice(1));
  cursors(trainView, plots);
  stays(plots);
  const [smooth, log, axis] = ['input[type=range]', 'input[type=checkbox]', 'select'].map(name => document.querySelector('#curves ' + name)), before = line();
  change(smooth, 0.9);
  expect(line() !== before && loss.querySelector('.faint').getAttribute('d') !== line(), 'smoothing draws a smoother line, with the curve itself behind it');
  change(smooth, 0);
  expect(line() === before && !loss.querySelector('.faint'), 'no smoothing is the curve itself');
  const ticks = () => [...loss.querySelectorAll('text')].map(node => node.textContent).join();
  const linearTicks = ticks();
  log.click();
  expect(line() !== before, 'a log scale draws another line');
  log.click();
  expect(ticks() === linearTicks, 'and back');
  change(axis, 'tokens');
  expect(trainView.end === data.metrics.step * tokensOfStep(data) || data.compare, 'tokens are on the axis');
  change(axis, 'time');
  expect(ticks() !== linearTicks, 'time is on the axis');
  change(axis, 'step');
  expect(Boolean(data.compare) === Boolean(loss.querySelector('.line.other')), 'a second run is drawn where there is one');
  if (!data.compare) return;
  const legend = document.querySelector('#curves .legend').textContent;
  expect(legend.includes(data.name) && legend.includes(data.compare.name), 'the legend names both runs');
  point(loss, 'pointermove', ...inMiddle(loss));
  const read = loss.parentNode.querySelector('output').textContent;
  expect(read.includes(data.name + ' training') && read.includes(data.compare.name + ' training'), 'values of both are read: ' + read);
  point(loss, 'pointerleave', 0, 0);
}

// One mark for each plan that was simulated; rows say only what differs.
function scatter(data) {
  const marks = document.querySelectorAll('svg .dot-other[transform]'), chosen = document.querySelectorAll('.dot-chosen'), tried = (data.plan.tried || []).filter(row => known(row.step_s));
  expect(chosen.length === 1, 'this plan is marked once');
  if (tried.length) expect(marks.length === tried.length - 1, `each other plan has a mark: ${marks.length} of ${tried.length - 1}`);
  const figure = chosen[0].closest('figure'), line = figure.querySelector('.detail-line'), hint = line.textContent, plot = figure.querySelector('.chart');
  point(plot, 'pointermove', ...inMiddle(marks[0]));
  expect(line.textContent !== hint && /ms|s a step/.test(line.textContent), 'pointing at a mark says what differs');
  press(plot, 'Escape');
  const same = Object.values(policyTraits(data.plan.policy)).filter(text => text);
  for (const row of [...figure.querySelectorAll('tbody tr')].slice(1))
    row.firstChild.textContent.toLowerCase().split('; ').forEach(words => expect(!same.some(text => text.toLowerCase() === words), 'a row says what is the same: ' + words));
  expect(differences(data.plan.policy, {...data.plan.policy, micro_batches_per_wave: 77}).length === 1, 'one difference is one');
}

function samples(data) {
  const {kept} = data.samples;
  expect(byId('samples').hidden === !kept.length, 'samples are shown where there are any');
  if (kept.length < 2) return;
  const text = () => byId('written').querySelector('.sample').textContent, slider = byId('written').querySelector('input');
  expect(text().endsWith(kept[kept.length - 1].text), 'the newest sample is shown first');
  change(slider, 0);
  expect(text().endsWith(kept[0].text), 'the slider goes to the first');
  change(slider, kept.length - 1);
}

// How a run ended, and what to do then.
function ends(data) {
  const textOf = (state, more) => { const end = endOfRun({...data, end: {state, message: 'full disk'}, resume: 'ballast resume here', ...more}); return end.slice(1).flat().map(part => part && part.textContent || part).join(''); };
  for (const [state, words] of [['finished', 'Finished: '], ['stopped', 'Stopped by a signal'], ['failed', 'full disk'], ['interrupted', 'Interrupted'], ['goes on', 'Still running']])
    expect(textOf(state).includes(words), state + ': ' + textOf(state));
  expect(textOf('stopped').includes('ballast resume here') && textOf('finished').includes('ballast resume here --steps'), 'the command that goes on');
  expect(!textOf('stopped', {options: {...data.options, save_every: 0}}).includes('ballast resume'), 'no command where nothing was saved');
  const steps = data.options.steps;
  expect(goneText({...data, options: {steps: steps + 100000}}, 'noon').includes('ballast resume'), 'a server that is gone leaves the command');
}

function print() {
  const closed = () => document.querySelectorAll('details:not([open])').length, before = closed();
  expect(before > 0, 'there are closed tables');
  setView(stepView, 0, stepView.end / 8);
  dispatchEvent(new Event('beforeprint'));
  expect(closed() === 0, 'tables are open on paper');
  expect(span(stepView) === stepView.end, 'paper has the whole step');
  dispatchEvent(new Event('afterprint'));
  expect(closed() === before && span(stepView) === stepView.end / 8, 'after printing all is as it was');
}

function goThrough() {
  const plots = [...document.querySelectorAll('.step .chart')], data = JSON.parse(byId('data').textContent);
  // Each is drawn once its width is known, and those above make space for themselves.
  if (![...document.querySelectorAll('.chart')].every(plot => plot.querySelector('svg'))) return setTimeout(goThrough, 20);
  expect(document.documentElement.scrollWidth <= innerWidth, `nothing is wider than ${innerWidth}: ${document.documentElement.scrollWidth}`);
  expect(byId('name').textContent === data.name, 'the title is the name of the directory');
  expect(!data.end || byId('state').textContent.includes(data.resume), 'the command that goes on is told');
  document.querySelectorAll('[role=group]').forEach(node => expect(node.getAttribute('aria-label') && node.tabIndex === 0, 'what has keys can be reached and has a name'));
  document.querySelectorAll('input, select').forEach(node => expect(node.getAttribute('aria-label') || node.closest('label'), 'every control has a name'));
  zoomAndMove(stepView, plots[plots.length - 1], plots.slice(0, -1));
  cursors(stepView, plots);
  stays(plots);
  schedule(data, plots[0]);
  readEvents(data, plots[plots.length - 1]);
  curves(data);
  scatter(data);
  samples(data);
  ends(data);
  print();
  document.title = 'interacted';
}
goThrough();
