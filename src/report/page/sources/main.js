// Draws the document that stands in the page and, where a server gave the page, keeps it up to date.
const POLL_MS = 2000;

function show(data) {
  showSummary(data);
  showCurves(data);
  showSamples(data);
  showPlan(data);
  showStep(data);
}

const showState = (here, text) => replace(byId('state'), html('span', {class: 'dot' + (here ? '' : ' gone')}), document.createTextNode(text));
const clock = () => new Date().toLocaleTimeString();

async function get(name) {
  const response = await fetch(name, {cache: 'no-store'});
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// A server ends with its run: what was seen last says how far that was.
function goneText(data, seen) {
  const steps = data.options && data.options.steps, step = data.metrics ? data.metrics.step : 0;
  if (steps && step >= steps) return `All ${whole(steps)} steps are done; the run no longer answers since ${seen}.`;
  return `The run no longer answers: it has ended, or is out of reach. Last seen at ${seen}, after step ${whole(step)}${steps ? ' of ' + whole(steps) : ''}. If it has ended, go on with: ${data.resume}`;
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
        data.metrics = changes.metrics, data.compare = changes.compare, showSummary(data), showCurves(data);
      if (changes.samples !== data.samples.count) data.samples = (await get('data.json')).samples, showSamples(data);
      seen = clock();
      showState(true, 'Live, last looked at ' + seen);
    } catch (error) {
      showState(false, goneText(data, seen));
    }
  }
}

// On paper nothing can be opened and nothing scrolled to.
let shownBefore = null;
function showAll() {
  const closed = [...document.querySelectorAll('details:not([open])')];
  shownBefore = {closed, views: [stepView, trainView].map(view => [view, view.from, view.to])};
  closed.forEach(details => { details.open = true; });
  shownBefore.views.forEach(([view]) => { view.from = view.begin, view.to = view.end, view.listeners.forEach(paint => paint()); });
}
function showAsBefore() {
  if (!shownBefore) return;
  shownBefore.closed.forEach(details => { details.open = false; });
  shownBefore.views.forEach(([view, from, to]) => setView(view, from, to));
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
