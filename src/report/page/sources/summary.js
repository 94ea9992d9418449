// The head of the page, and its key numbers.
const lastOf = (data, name) => data.metrics ? data.metrics.last[name] : null;
const firstKnown = (...values) => values.find(known);
const predictedStep = data => firstKnown(data.plan.step_s, data.predicted && data.predicted.step_s, lastOf(data, 'predicted_step_s'));
const tokensOfStep = data => data.plan.recipe.batch * data.plan.recipe.sequence_length;

// A typical step: the median of the curve's means, which a slow start does not move.
function measuredStep(data) {
  const curve = data.metrics && data.metrics.curves.step_s;
  if (!curve || !curve.mean.length) return data.measured ? data.measured.step_s : null;
  const sorted = [...curve.mean].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

function key(title, value, detail, extra) {
  return html('div', {class: 'card'}, html('dt', {}, title), html('dd', {}, html('div', {class: 'value'}, value), extra, detail ? html('div', {class: 'detail'}, detail) : null));
}

function progressKey(data) {
  const steps = data.options && data.options.steps, step = data.metrics ? data.metrics.step : 0;
  if (!steps) return null;
  const part = Math.min(1, step / steps), left = (steps - step) * measuredStep(data);
  const bar = html('div', {class: 'bar', role: 'progressbar', 'aria-label': 'steps done', 'aria-valuemin': 0, 'aria-valuemax': steps, 'aria-valuenow': step},
    html('i', {style: `width:${(100 * part).toFixed(1)}%`}));
  return key('Steps', [whole(step), html('small', {}, ' of ' + whole(steps))], step < steps ? (left > 0 ? 'about ' + seconds(left) + ' of steps left' : 'not begun') : 'complete', bar);
}

// The loss of pairs of answers is of no token: it has no perplexity.
const learnsPreferences = data => data.plan.recipe.loss === 'dpo';

function lossKeys(data) {
  const loss = lastOf(data, 'loss'), valid = lastOf(data, 'val_loss'), margin = lastOf(data, 'margin'), right = lastOf(data, 'accuracy');
  const best = data.metrics && data.metrics.min_val_loss;
  return [known(loss) ? key('Training loss', digits(loss, 4), learnsPreferences(data) ? 'of pairs of answers' : 'perplexity ' + digits(Math.exp(loss), 3)) : null,
    known(margin) ? key('Margin of rewards', digits(margin, 3), known(right) ? percent(right) + ' of the pairs in the right order' : null) : null,
    known(valid) ? key('Validation loss', digits(valid, 4),
      best < valid ? 'best ' + digits(best, 4) : 'the best so far, at step ' + whole(data.metrics.val_step)) : null];
}

function timeKeys(data) {
  const predicted = predictedStep(data), measured = measuredStep(data), tokens = tokensOfStep(data);
  const time = known(measured) ? measured : predicted;
  if (!known(time)) return [];
  const off = known(predicted) && known(measured) ? predicted / measured - 1 : null, mfu = lastOf(data, 'mfu');
  return [key(known(measured) ? 'Step time' : 'Step time, predicted', seconds(time),
    known(off) ? `predicted ${seconds(predicted)} (${off < 0 ? '−' : '+'}${percent(Math.abs(off))})` : known(measured) ? 'median' : 'by simulation'),
  key('Throughput', [amount(tokens / time), html('small', {}, ' tokens/s')], known(mfu) ? percent(mfu) + ' of the matrix rate (MFU)' : whole(tokens) + ' tokens a step')];
}

// The tiers as the plan has them, else as a timeline has them.
function tiersOf(data) {
  if (data.plan.tiers && data.plan.tiers.length) return data.plan.tiers;
  const timeline = data.measured || data.predicted;
  return timeline ? timeline.tiers : [];
}
const TIER_TITLES = {device: 'Device memory', host: 'Host memory', disk: 'Disk'};
const tierTitle = name => TIER_TITLES[name] || capital(name);

function memoryKeys(data) {
  const tiers = tiersOf(data).filter(tier => tier.program_bytes > 0), resident = lastOf(data, 'device_bytes');
  if (!tiers.length && known(resident)) return [key('Device memory', bytes(resident), 'resident')];
  return tiers.map(tier => key(tierTitle(tier.name), bytes(tier.program_bytes), tierUse(tier), tier.by_kind || tier.capacity_bytes ? kindsBar(tier, 8) : null));
}

// The last change of the plan while the run went on, and how many there were.
const REPLAN_WORDS = {faster: 'since another was faster', 'less memory': 'since there was less memory', 'more memory': 'with more memory'};
function replanKey(data) {
  const replans = data.metrics && data.metrics.replans || [], last = replans[replans.length - 1];
  if (!last) return null;
  const times = known(last.predicted_before_s) && known(last.predicted_after_s) ? `; predicted ${seconds(last.predicted_after_s)} a step, not ${seconds(last.predicted_before_s)}` : '';
  return key('Plan changed', [whole(replans.length), html('small', {}, replans.length === 1 ? ' time' : ' times')],
    `after step ${whole(last.step)}, ${REPLAN_WORDS[last.replan] || last.replan}${times}; ${bytes(last.device_bytes_after)} of memory, not ${bytes(last.device_bytes_before)}`);
}

// Settings that resume changed.
function changesKey(data) {
  const changes = data.changes || [];
  if (!changes.length) return null;
  return key('Changed', [whole(changes.length), html('small', {}, changes.length === 1 ? ' setting' : ' settings')],
    changes.map(change => `after step ${whole(change.step)}: ${change.field} ${change.to}, was ${change.from}`).join('; '));
}

// How a run stands: whether it goes on, or how it ended, and the command that takes it further.
const longer = data => data.options && data.options.epochs ? `--epochs ${+(2 * data.options.epochs).toPrecision(6)}` : `--steps ${Math.max(2 * (data.options && data.options.steps || (data.metrics ? data.metrics.step : 0)), 2)}`;
function endOfRun(data) {
  const end = data.end, steps = data.options && data.options.steps, step = data.metrics ? data.metrics.step : 0, saves = !data.options || data.options.save_every !== 0;
  const done = steps ? `${whole(step)} of ${whole(steps)} steps` : plural(step, 'step');
  const on = !end ? null : saves ? html('code', {class: 'command'}, data.resume) : 'Nothing was saved (--save-every 0), so it cannot go on.';
  if (!end) return null;
  if (end.state === 'goes on') return ['', `Still running when this page was made, after ${done}.`, null];
  if (end.state === 'finished' || end.state === 'interrupted' && steps && step >= steps && !end.message)
    return ['good', `Finished: ${done}.`, saves ? ['To train longer: ', html('code', {class: 'command'}, `${data.resume} ${longer(data)}`)] : null];
  const how = {stopped: `Stopped by a signal after ${done}.`, failed: `Failed after ${done}: ${end.message}.`}[end.state] || `Interrupted after ${done}: the process ended without a word, as when it is killed.`;
  return [end.state === 'failed' ? 'bad' : 'gone', how, saves ? ['To go on: ', on] : on];
}
function showEnd(data) {
  const end = data.live ? null : endOfRun(data);
  if (end) replace(byId('state'), html('span', {class: 'dot ' + end[0]}), document.createTextNode(end[1] + ' '), end[2]);
}

function showSummary(data) {
  const run = data.kind === 'run';
  document.title = data.name + (run && data.metrics && data.metrics.step ? `, step ${whole(data.metrics.step)}` : '') + ' · Ballast';
  byId('name').textContent = data.name;
  byId('subtitle').textContent = modelLine(data) || (run ? 'A training run' : 'A plan that has not run');
  const keys = [run ? progressKey(data) : null, run ? lossKeys(data) : null, timeKeys(data), memoryKeys(data),
    run ? changesKey(data) : null, run ? replanKey(data) : null, run && lastOf(data, 'tokens') ? key('Tokens', amount(lastOf(data, 'tokens')), 'trained on so far') : null].flat().filter(k => k);
  replace(byId('summary'), html('dl', {class: 'keys'}, keys));
  showEnd(data);
  byId('made').textContent = `Made by Ballast ${data.ballast}. This page needs no network and sends nothing.`;
}
