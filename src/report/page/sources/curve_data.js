// What a chart of training draws: the curves of this run and of one compared with it, on an axis of steps, tokens or time, and
// smoothed.
const train = {axis: 'step', smooth: 0, log: false};
const AXES = {step: ['steps', value => amount(value)], tokens: ['tokens', value => amount(value)], time: ['time in steps', value => seconds(value)]};

// Seconds of all steps up to each point of the curve of step times.
function timesOf(metrics) {
  const curve = metrics.curves.step_s, steps = [0], times = [0];
  if (curve) curve.step.forEach((step, i) => { times.push(times[i] + (step - steps[i]) * curve.mean[i]); steps.push(step); });
  return {steps, times};
}
function axisOf(metrics, stepTokens) {
  if (train.axis === 'tokens') return step => step * stepTokens;
  if (train.axis !== 'time') return step => step;
  const {steps, times} = timesOf(metrics), last = steps.length - 1;
  return step => {
    const i = Math.min(last, above(steps, step - 1e-9)), before = Math.max(0, i - 1);
    return steps[i] === steps[before] ? times[i] : times[before] + (step - steps[before]) / (steps[i] - steps[before]) * (times[i] - times[before]);
  };
}

// An average of the points before, each `smooth` as heavy as the next; the first ones are not drawn towards zero.
function smoothed(values, smooth) {
  let sum = 0, weight = 0;
  return values.map(value => (sum = smooth * sum + value, weight = smooth * weight + 1, sum / weight));
}

// One series of one run, ready to be drawn: xs, raw values, the line, and the range of each bucket.
function makeSeries(run, series) {
  const curve = run.metrics.curves[series.name];
  if (!curve || !curve.step.length) return null;
  const xs = curve.step.map(run.axis), smooth = train.smooth > 0 && !series.marks;
  return {...series, run, xs, steps: curve.step, raw: curve.mean, line: smooth ? smoothed(curve.mean, train.smooth) : curve.mean, low: curve.low, high: curve.high, smooth};
}

function runsOf(data) {
  const runs = data.metrics ? [{name: data.name, folder: data.folder, metrics: data.metrics, axis: axisOf(data.metrics, tokensOfStep(data)), other: false}] : [];
  if (data.compare) runs.push({name: data.compare.name, folder: data.compare.folder, metrics: data.compare.metrics, axis: axisOf(data.compare.metrics, data.compare.step_tokens), other: true});
  if (runs.length > 1 && runs[0].name === runs[1].name) runs.forEach(run => { run.name = run.folder; }); // of the same name, elsewhere
  return runs;
}
