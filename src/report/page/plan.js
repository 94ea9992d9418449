// The plan in words.
const pick = (object, ...names) => { for (const name of names) if (object && object[name] !== undefined && object[name] !== null) return object[name]; return null; };

function modelLine(data) {
  const model = data.model;
  if (!model || !model.model_type) return '';
  const layers = pick(model, 'num_hidden_layers', 'n_layer'), width = pick(model, 'hidden_size', 'n_embd'), heads = pick(model, 'num_attention_heads', 'n_head');
  const vocabulary = model.vocab_size;
  return capital([model.model_type, layers ? plural(layers, 'layer') : '', width ? 'width ' + whole(width) : '', heads ? plural(heads, 'head') : '',
    vocabulary ? 'vocabulary ' + whole(vocabulary) : ''].filter(t => t).join(', '));
}

function recipeWords(data) {
  const r = data.plan.recipe, grains = Math.ceil(r.batch / r.grain_sequences), adapters = r.lora ? `, with adapters (LoRA ${r.lora})` : '';
  return `Each step trains on ${plural(r.batch, 'sequence')} of ${whole(r.sequence_length)} tokens, ${whole(tokensOfStep(data))} in all, in ${r.dtype}${adapters}. ` +
    `Kernels work on ${plural(grains, 'grain')} of ${plural(r.grain_sequences, 'sequence')}, on ${plural(r.threads, 'thread')} (${r.isa}). ` +
    `AdamW: β ${r.beta1} and ${r.beta2}, weight decay ${r.weight_decay}${r.clip_norm > 0 ? `, gradients clipped at norm ${r.clip_norm}` : ', no clipping'}; seed ${r.seed}.`;
}

const waiting = kinds => list(kinds.map(kind => kind === 'optimizer' ? 'optimizer state' : kind)) + (kinds.join() === 'optimizer' ? ' waits ' : ' wait ');
const PLACES = {device: 'in device memory', host: 'in host memory', disk: 'on the disk'};
function policyWords(data) {
  const p = data.plan.policy, kinds = ['parameters', 'gradients', 'optimizer'];
  const away = kinds.filter(kind => (p[kind] || 'device') !== 'device'), pass = plural(p.grains_per_pass || 1, 'grain');
  const first = `Activations of ${pass} are in memory at a time. `;
  if (!away.length) return first + 'Parameters, gradients and optimizer state stay in device memory; nothing moves during a step.';
  const where = [...new Set(away.map(kind => p[kind]))].map(tier => waiting(away.filter(kind => p[kind] === tier)) + (PLACES[tier] || 'in ' + tier));
  return first + capital(list(where)) + ' between uses' + (p.persistent_chunks ? `, but those of the first ${plural(p.persistent_chunks, 'chunk')} stay in device memory` : '') + '. ' +
    (p.buffers ? `${plural(p.buffers, 'chunk')} of the others ${p.buffers === 1 ? 'has' : 'have'} a place there at once. ` : '') +
    (p.lookahead ? `Copies may run ${plural(p.lookahead, 'block')} ahead. ` : '') +
    (p.optimizer && p.optimizer !== 'device' ? "Their update is made beside the next step's forward, so that moving the state costs no time of its own." : '');
}

// What a schedule does: blocks whose forward comes again, and where activations wait.
function scheduleWords(schedule) {
  if (!schedule) return 'All activations are kept until their backward.';
  const runs = {}, sent = {h: new Set(), d: new Set()};
  for (const [, kind, from, to] of schedule.slice(0, 20000).matchAll(/([fbhd])(\d+)(?:-(\d+))?/g)) {
    const a = +from, b = to === undefined ? a : +to;
    for (let block = Math.min(a, b); block <= Math.max(a, b) && block < 5000; block++)
      if (kind === 'f') runs[block] = (runs[block] || 0) + 1; else if (sent[kind]) sent[kind].add(block);
  }
  const again = Object.values(runs).filter(count => count > 1).length, blocks = Object.keys(runs).length, parts = [];
  if (again) parts.push(`${again} of ${plural(blocks, 'block')} ${again === 1 ? 'is' : 'are'} computed again in backward in place of being kept`);
  if (sent.h.size) parts.push(`activations of ${plural(sent.h.size, 'block')} wait in host memory`);
  if (sent.d.size) parts.push(`activations of ${plural(sent.d.size, 'block')} wait on the disk`);
  return capital(parts.length ? parts.join('; ') : 'all activations are kept until their backward') + '.';
}

const roleName = role => String(role).replace(/_/g, ' ');
const boundName = bound => bound.what || roleName(bound.activity || bound.role || 'work') + (bound.phase ? ' during ' + bound.phase : '');
function bindsText(binds) {
  if (typeof binds === 'string') return binds;
  const entries = [].concat(binds || []).filter(bound => bound && typeof bound === 'object' && known(bound.seconds));
  return entries.length ? list(entries.slice(0, 3).map(bound => `${boundName(bound)} (${seconds(bound.seconds)})`)) : '';
}

function timeWords(data) {
  const predicted = predictedStep(data), measured = measuredStep(data), timeline = data.measured || data.predicted;
  const binds = bindsText(data.plan.binds) || bindsText(timeline && timeline.bounds);
  const sentences = [];
  if (known(predicted)) sentences.push(`A step is predicted to take ${seconds(predicted)}` + (known(measured) ? `; it took ${seconds(measured)}` : `, that is ${amount(tokensOfStep(data) / predicted)} tokens a second`) + '.');
  if (binds) sentences.push(`What its length comes from: ${binds}.`);
  return sentences.join(' ');
}

function policyBrief(p) {
  if (!p) return '';
  const away = ['parameters', 'gradients', 'optimizer'].filter(kind => p[kind] && p[kind] !== 'device').map(kind => `${kind} → ${p[kind]}`);
  const parts = [away.length ? away.join(', ') : 'all on the device', plural(p.grains_per_pass || 1, 'grain') + ' a pass'];
  if (away.length && p.persistent_chunks) parts.push(plural(p.persistent_chunks, 'chunk') + ' stay');
  if (p.schedule) parts.push(scheduleWords(p.schedule).replace(/\.$/, '').replace(/^./, c => c.toLowerCase()));
  return parts.join('; ');
}

const rowBytes = row => firstKnown(row.device_bytes, row.tier_bytes && row.tier_bytes[0], row.tiers && row.tiers[0] && row.tiers[0].program_bytes);
const rowLine = (row, predicted) => [row.name || row.choice || row.text || policyBrief(row.policy), seconds(row.step_s),
  known(row.step_s) && predicted ? (row.step_s < predicted ? '−' : '+') + percent(Math.abs(row.step_s / predicted - 1)) : '–', bytes(rowBytes(row))];
// Other plans beside this one; nothing where there are none.
function otherPlans(data, title, plans, inOrder) {
  const rows = [].concat(plans || []).filter(row => row && typeof row === 'object');
  if (!rows.length) return null;
  const predicted = predictedStep(data), device = tiersOf(data)[0];
  const chosen = Object.assign(['This plan: ' + policyBrief(data.plan.policy), seconds(predicted), '', device ? bytes(device.program_bytes) : '–'], {chosen: true});
  return html('div', {class: 'card'}, html('h3', {}, title), table(['Plan', '#Step', '#Against this', '#Device memory'], [chosen, ...inOrder(rows).map(row => rowLine(row, predicted))]));
}
const runnersUp = data => otherPlans(data, 'What else was simulated', data.plan.runners_up, rows => rows);
// What a step takes with less memory: none of these is both slower and larger than another. The fastest is this plan.
const front = data => otherPlans(data, 'Memory against time', (data.plan.front || []).filter(row => row.step_s > data.plan.step_s), rows => rows.slice().sort((a, b) => rowBytes(a) - rowBytes(b)));

const pairs = object => Object.entries(object || {}).map(([name, value]) => [html('code', {}, name), html('code', {}, typeof value === 'string' ? value || '""' : JSON.stringify(value))]);
function showPlan(data) {
  const sentences = [recipeWords(data), policyWords(data), scheduleWords(data.plan.policy.schedule), timeWords(data)];
  const details = [['Recipe: what fixes the bits of the result', data.plan.recipe], ['Policy: what never changes them', data.plan.policy], ['Options of the run', data.options]]
    .filter(([, object]) => object).map(([title, object]) => html('details', {}, html('summary', {}, title), table(['Field', 'Value'], pairs(object))));
  replace(byId('words'), html('div', {class: 'stack'}, html('div', {class: 'card words'}, sentences.filter(t => t).map(text => html('p', {}, text))), runnersUp(data), front(data),
    html('div', {}, details)));
}
