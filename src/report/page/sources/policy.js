// Policies in words: what one does, and in what another differs from it.
const STATES = [['parameters', 'parameters'], ['gradients', 'gradients'], ['optimizer', 'optimizer state']];
const PLACES = {device: 'in device memory', host: 'in host memory', disk: 'on the disk'};
const placeOf = tier => PLACES[tier] || 'in ' + tier;

// What a schedule does: how many blocks are computed again, and the activations of how many wait elsewhere.
function readSchedule(schedule) {
  const runs = {}, sent = {h: new Set(), d: new Set()};
  for (const [, kind, from, to] of String(schedule || '').slice(0, 20000).matchAll(/([fbhd])(\d+)(?:-(\d+))?/g)) {
    const a = +from, b = to === undefined ? a : +to;
    for (let block = Math.min(a, b); block <= Math.max(a, b) && block < 5000; block++)
      if (kind === 'f') runs[block] = (runs[block] || 0) + 1; else if (sent[kind]) sent[kind].add(block);
  }
  return {again: Object.values(runs).filter(count => count > 1).length, blocks: Object.keys(runs).length, host: sent.h.size, disk: sent.d.size};
}

const firstChunks = count => count === 1 ? 'the first chunk' : `the first ${plural(count, 'chunk')}`;

// A policy as traits, each with the words for it: those of two policies that have other words are what differs.
function policyTraits(p) {
  const schedule = readSchedule(p.schedule), away = STATES.filter(([kind]) => (p[kind] || 'device') !== 'device');
  const words = {wave: plural(p.micro_batches_per_wave || 1, 'micro-batch', 'micro-batches') + ' per wave'};
  for (const [kind, name] of STATES) words[kind] = name + ' ' + placeOf(p[kind] || 'device');
  words.chunks = !away.length ? '' : p.persistent_chunks ? `all of ${firstChunks(p.persistent_chunks)} in device memory` : 'no chunk always in device memory';
  words.update = p.update && p.update !== 'device' ? 'updated on the ' + p.update : 'updated on the device';
  words.again = schedule.again ? plural(schedule.again, 'block') + ' computed again' : 'nothing computed again';
  words.tiles = p.tile_tokens ? `MLPs in tiles of ${plural(p.tile_tokens, 'token')}` : 'MLPs on all tokens at once';
  words.selective = p.selective_recompute ? 'norms and activation functions recomputed in backward' : 'outputs of norms and activation functions kept';
  words.host = schedule.host ? `activations of ${plural(schedule.host, 'block')} to host memory` : 'no activations to host memory';
  words.disk = schedule.disk ? `activations of ${plural(schedule.disk, 'block')} to the disk` : 'no activations to the disk';
  const cut = p.partition || {}, widths = STATES.map(([kind]) => cut[kind] || 1);
  words.shards = cut.optimizer > 1 ? `${widths.join('|')} shards of parameters, gradients and optimizer state` : 'all states on each rank';
  words.flat = p.flat ? 'flat collectives' : 'hierarchical collectives';
  words.lookahead = p.lookahead ? 'copies a block ahead' : p.update_ahead ? 'updates a block ahead' : 'copies not ahead';
  words.size = p.chunk_bytes ? `chunks of ${bytes(p.chunk_bytes)}` : 'chunks of the usual size';
  words.buffers = (p.parameters || 'device') !== 'device' ? `space for ${plural(p.buffers || 0, 'chunk')} of parameters` : '';
  return words;
}
function differences(policy, chosen) {
  const mine = policyTraits(policy), theirs = policyTraits(chosen);
  const words = Object.keys(mine).filter(trait => mine[trait] !== theirs[trait]).map(trait => mine[trait]).filter(text => text);
  return words.length ? words : policy.schedule !== chosen.schedule ? ['other blocks of the same number'] : ['nothing that a reader would see'];
}
// The tiers that a policy uses besides the device.
function tiersUsed(p) {
  const schedule = readSchedule(p.schedule), homeTiers = STATES.map(([kind]) => p[kind]);
  return {host: homeTiers.includes('host') || p.update === 'host' || schedule.host > 0, disk: homeTiers.includes('disk') || schedule.disk > 0};
}

// The optimizer state alone is one thing, parameters and gradients are many.
const isOne = states => states.length === 1 && states[0][0] === 'optimizer';
const waiting = states => list(states.map(([, name]) => name)) + (isOne(states) ? ' waits ' : ' wait ');
const verb = count => count === 1 ? 'is' : 'are';
function policyWords(data) {
  const p = data.plan.policy, away = STATES.filter(([kind]) => (p[kind] || 'device') !== 'device'), count = p.micro_batches_per_wave || 1;
  const first = `A wave takes ${plural(count, 'micro-batch', 'micro-batches')} through forward and backward; only the activations of one wave are in memory. `;
  if (!away.length) return first + 'Parameters, gradients and optimizer state stay in device memory.';
  const where = [...new Set(away.map(([kind]) => p[kind]))].map(tier => waiting(away.filter(([kind]) => p[kind] === tier)) + placeOf(tier));
  return first + (p.persistent_chunks ? `Parameters move in chunks. ${capital(firstChunks(p.persistent_chunks))} ${p.persistent_chunks === 1 ? 'stays' : 'stay'} in device memory with all that belongs to ${p.persistent_chunks === 1 ? 'it' : 'them'}. Of the others, ` : '') +
    (p.persistent_chunks ? where.join(', ') : capital(where.join(', '))) + ` and ${isOne(away) ? 'is' : 'are'} copied to device memory when a block needs ${isOne(away) ? 'it' : 'them'}. ` +
    (p.buffers && p.parameters !== 'device' ? `Device memory has space for the parameters of ${plural(p.buffers, 'such chunk')} at a time. ` : '') +
    (p.lookahead ? 'Copies begin one block before they are needed. ' : p.update_ahead ? 'Updates begin one block before they are needed. ' : '') +
    (!p.optimizer || p.optimizer === 'device' ? '' : data.plan.recipe && data.plan.recipe.clip_norm === 0 ? 'Nothing is clipped, so these chunks are updated within backward, as soon as their gradients are complete.' : 'These chunks are updated while the next step runs forward, so that the copies of optimizer state cost little time.');
}
function scheduleWords(policy) {
  const {again, blocks, host, disk} = readSchedule(policy.schedule), parts = [];
  if (again) parts.push(`${again} of ${plural(blocks, 'block')} ${verb(again)} computed again in backward, so that ${again === 1 ? 'its' : 'their'} activations need not be kept`);
  if (policy.tile_tokens) parts.push(`MLPs work on ${plural(policy.tile_tokens, 'token')} of a micro-batch at a time, and again in backward, so that only these have wide activations`);
  if (policy.selective_recompute) parts.push('norms and activation functions are recomputed in backward, so that their outputs need not be kept');
  if (host) parts.push(`the activations of ${plural(host, 'block')} wait in host memory for their backward`);
  if (disk) parts.push(`the activations of ${plural(disk, 'block')} wait on the disk for their backward`);
  return capital(parts.length ? parts.join('; ') : 'all activations are kept until their backward') + '.';
}
