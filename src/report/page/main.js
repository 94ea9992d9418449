// Draws the document that stands in the page and, where a server gave the page, keeps it up to date.
const POLL_MS = 2000;

function showStep(data) {
  view.listeners.length = 0;
  openView(1e6 * Math.max(...[data.predicted, data.measured].map(timeline => timeline ? timeline.step_s : 0), 1e-6));
  showMemory(data);
  showTimeline(data);
}
function show(data) {
  showSummary(data);
  showPlan(data);
  showCurves(data);
  showStep(data);
}

const showState = (here, text) => replace(byId('state'), html('span', {class: 'dot' + (here ? '' : ' gone')}), document.createTextNode(text));
const clock = () => new Date().toLocaleTimeString();

async function get(name) {
  const response = await fetch(name, {cache: 'no-store'});
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// Only what changed is asked for and drawn again; zoom, cursor and open tables stay.
async function follow(data) {
  let seen = clock();
  for (;;) {
    await new Promise(wake => setTimeout(wake, POLL_MS));
    if (document.hidden) continue;
    try {
      const changes = await get('changes.json');
      if (changes.revision !== data.revision) Object.assign(data, await get('data.json')), show(data);
      else if (changes.metrics.step !== data.metrics.step || changes.metrics.val_step !== data.metrics.val_step)
        data.metrics = changes.metrics, showSummary(data), showCurves(data);
      seen = clock();
      showState(true, 'Live, last looked at ' + seen);
    } catch (error) {
      showState(false, 'The run no longer answers: it has ended, or is out of reach. Last seen ' + seen);
    }
  }
}

// On paper nothing can be opened and nothing scrolled to.
let shownBefore = null;
function showAll() {
  const closed = [...document.querySelectorAll('details:not([open])')];
  shownBefore = {closed, from: view.from, to: view.to};
  closed.forEach(details => { details.open = true; });
  view.from = 0, view.to = view.end;
  view.listeners.forEach(paint => paint());
}
function showAsBefore() {
  if (!shownBefore) return;
  shownBefore.closed.forEach(details => { details.open = false; });
  setView(shownBefore.from, shownBefore.to);
  shownBefore = null;
}

function start() {
  addEventListener('beforeprint', showAll);
  addEventListener('afterprint', showAsBefore);
  const data = JSON.parse(byId('data').textContent);
  show(data);
  if (!data.live) return;
  showState(true, 'Live');
  follow(data);
}
