// The plan in words.
const pick = (object, ...names) => { for (const name of names) if (object && object[name] !== undefined && object[name] !== null) return object[name]; return null; };

function modelLine(data) {
  const model = data.model;
  if (!model || !model.model_type) return data.model_name || '';
  const layers = pick(model, 'num_hidden_layers', 'n_layer'), width = pick(model, 'hidden_size', 'n_embd'), heads = pick(model, 'num_attention_heads', 'n_head');
  const vocabulary = model.vocab_size, experts = pick(model, 'num_local_experts', 'num_experts'), name = data.model_name && data.model_name !== data.name ? data.model_name + ': ' : '';
  return name + [model.model_type, layers ? plural(layers, 'layer') : '', width ? 'width ' + whole(width) : '', heads ? plural(heads, 'head') : '',
    experts ? plural(experts, 'expert') + ' a layer' : '', vocabulary ? 'vocabulary ' + whole(vocabulary) : ''].filter(t => t).join(', ');
}

const optimizerNames = { lion: 'Lion', sgd: 'SGD', muon: 'Muon' };

// "8,16,q_proj,v_proj": rank, alpha, and the layers that have adapters.
function adapterWords(recipe) {
  if (!recipe.lora) return '';
  const [rank, alpha, ...layers] = recipe.lora.split(',');
  return `, with LoRA adapters of rank ${rank} and alpha ${alpha} on ${list(layers)}` +
    (recipe.quantize_base && recipe.quantize_base !== 'none' ? `, and a base in ${recipe.quantize_base}` : '');
}

function recipeWords(data) {
  const r = data.plan.recipe, threads = data.plan.threads ?? r.threads, count = Math.ceil(r.batch / r.micro_batch);
  const pairs = learnsPreferences(data) ? `Every two of them are a pair, a chosen and a rejected answer; the loss is DPO's (${r.dpo_loss}), its β ${r.dpo_beta}. ` : '';
  return `Each step trains on ${plural(r.batch, 'sequence')} of ${whole(r.sequence_length)} tokens, ${whole(tokensOfStep(data))} in all, in ${r.dtype}${adapterWords(r)}. ${pairs}` +
    `They are computed in ${plural(count, 'micro-batch', 'micro-batches')} of ${plural(r.micro_batch, 'sequence')}, ${r.lanes && r.lanes !== '1' ? `in lanes ${r.lanes}, ` : ''}on ${plural(threads, 'thread')} (${r.isa}). ` +
    `${optimizerNames[r.optimizer] || 'AdamW'}${r.optimizer_dtype && r.optimizer_dtype !== 'fp32' ? ` with moments in ${r.optimizer_dtype}` : ''}${r.master_weights === 'none' && r.dtype === 'bf16' ? ' and no fp32 weights' : r.master_weights === 'split' ? ' and fp32 weights in two halves' : ''}: ${r.optimizer === 'sgd' ? `momentum ${r.beta1}` : r.optimizer === 'muon' ? `momentum ${r.muon_momentum}, AdamW for all but matrices of layers, β ${r.beta1} and ${r.beta2}` : `β ${r.beta1} and ${r.beta2}`}, weight decay ${r.weight_decay}${r.clip_norm > 0 ? `, gradients clipped at norm ${r.clip_norm}` : ', no clipping'}; seed ${r.seed}.`;
}

const roleName = role => String(role).replace(/_/g, ' ');
const boundName = bound => bound.what || roleName(bound.activity || bound.role || 'work') + (bound.phase ? ' during ' + bound.phase : '');
function bindsText(binds) {
  if (typeof binds === 'string') return binds;
  const entries = [].concat(binds || []).filter(bound => bound && typeof bound === 'object' && known(bound.seconds));
  return entries.length ? list(entries.slice(0, 3).map(bound => `${boundName(bound)} (${seconds(bound.seconds)})`)) : '';
}

function timeWords(data) {
  const predicted = predictedStep(data), measured = measuredStep(data), timeline = mainTimeline(data);
  const binds = bindsText(data.plan.binds) || bindsText(timeline && timeline.bounds);
  const sentences = [];
  if (known(predicted)) sentences.push(`A step is predicted to take ${seconds(predicted)}` + (known(measured) ? `; the median step took ${seconds(measured)}` : `, that is ${amount(tokensOfStep(data) / predicted)} tokens a second`) + '.');
  if (binds) sentences.push(`The largest parts of a step: ${binds}.`);
  return sentences.join(' ');
}

const pairs = object => Object.entries(object || {}).map(([name, value]) => [html('code', {}, name), html('code', {}, typeof value === 'string' ? value || '""' : JSON.stringify(value))]);
function showPlan(data) {
  const sentences = [recipeWords(data), policyWords(data), scheduleWords(data.plan.policy), timeWords(data)];
  const details = [['Recipe: what fixes the bits of the result', data.plan.recipe], ['Policy: what never changes them', data.plan.policy], ['Options of the run', data.options]]
    .filter(([, object]) => object).map(([title, object]) => html('details', {}, html('summary', {}, title), table(['Field', 'Value'], pairs(object))));
  replace(byId('words'), html('div', {class: 'stack'}, html('div', {class: 'card words'}, sentences.filter(t => t).map(text => html('p', {}, text))), makeScatter(data), html('div', {}, details)));
}
