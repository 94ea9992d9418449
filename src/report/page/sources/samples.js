// What the model wrote while it was trained, step by step.
const sampleState = {at: null}; // null: the newest

function showSample(nodes, kept, at) {
  const sample = kept[at];
  nodes.slider.value = at;
  nodes.slider.setAttribute('aria-valuetext', 'step ' + whole(sample.step));
  nodes.step.textContent = 'step ' + whole(sample.step) + ' of ' + whole(kept[kept.length - 1].step);
  replace(nodes.text, sample.prompt ? html('b', {}, sample.prompt) : null, document.createTextNode(sample.text));
}

function showSamples(data) {
  const kept = data.samples ? data.samples.kept : [];
  byId('samples').hidden = !kept.length;
  if (!kept.length) return;
  const last = kept.length - 1, at = () => sampleState.at === null ? last : Math.min(last, sampleState.at);
  const nodes = {slider: html('input', {type: 'range', min: 0, max: last, step: 1, 'aria-label': 'Step of the sample'}), step: html('output', {'aria-live': 'polite'}), text: html('p', {class: 'sample'})};
  nodes.slider.addEventListener('input', () => { sampleState.at = +nodes.slider.value === last ? null : +nodes.slider.value; showSample(nodes, kept, at()); });
  const all = html('details', {}, html('summary', {}, `All ${whole(kept.length)} as a list`), kept.map(sample => html('div', {class: 'sample-row'}, html('span', {class: 'note'}, 'step ' + whole(sample.step)),
    html('p', {class: 'sample'}, sample.prompt ? html('b', {}, sample.prompt) : null, sample.text))));
  const more = data.samples.count > kept.length ? html('p', {class: 'note'}, `${whole(kept.length)} of ${whole(data.samples.count)}, evenly spread; all are in samples.jsonl.`) : null;
  replace(byId('written'), html('div', {class: 'card'}, html('div', {class: 'caption'}, html('h3', {}, 'The prompt is bold'), nodes.step), kept.length > 1 ? nodes.slider : null, nodes.text, more, kept.length > 1 ? all : null));
  showSample(nodes, kept, at());
}
