// Hover and zoom for the aligned timelines. Without it the drawings stand still, and the tables say the same.
"use strict";
for (const figure of document.querySelectorAll(".timelines")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const plots = [...figure.querySelectorAll(".lane svg")];
  const grounds = plots.map((plot) => plot.parentElement.querySelector("i")); // as long as the iteration
  const lengths = grounds.map((ground) => parseFloat(ground.style.width) / 100 * data.length_us);
  const axis = figure.querySelector(".axis-ticks");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);
  let low = 0, high = data.length_us;

  const time = (us) => us === 0 ? "0 µs" : us >= 1000 ? (us / 1000).toPrecision(4) + " ms" : us.toPrecision(4) + " µs";

  function show() {
    const unit = data.span / data.length_us;
    for (const plot of plots) {
      plot.setAttribute("viewBox", `${low * unit} 0 ${(high - low) * unit} ${plot.viewBox.baseVal.height}`);
    }
    grounds.forEach((ground, index) => {
      const shown = Math.min(1, Math.max(0, (lengths[index] - low) / (high - low)));
      ground.style.width = 100 * shown + "%";
    });
    const power = 10 ** Math.floor(Math.log10((high - low) / 1000));
    const step = [5, 2, 1, 0.5, 0.2, 0.1].map((share) => share * power).find((s) => (high - low) / 1000 / s >= 3);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    axis.textContent = "";
    for (let i = Math.ceil(low / 1000 / step); i * step <= high / 1000; i++) {
      const tick = document.createElement("span");
      tick.style.left = 100 * (i * step * 1000 - low) / (high - low) + "%";
      tick.textContent = (i * step).toFixed(decimals);
      axis.append(tick);
      if (tick.offsetLeft + tick.offsetWidth > axis.clientWidth) tick.textContent = ""; // a part of a number is another
    }
  }

  function zoom(factor, at) {
    const width = Math.min(data.length_us, Math.max(1, (high - low) * factor));
    low = Math.min(Math.max(0, at - (at - low) * width / (high - low)), data.length_us - width);
    high = low + width;
    show();
  }

  function move(share) {
    const width = high - low;
    low = Math.min(Math.max(0, low + share * width), data.length_us - width);
    high = low + width;
    show();
  }

  const reset = () => { low = 0; high = data.length_us; show(); };
  const middle = () => (low + high) / 2;
  const actions = new Map([
    ["+", ["Zoom in", () => zoom(0.5, middle())]], ["-", ["Zoom out", () => zoom(2, middle())]],
    ["ArrowLeft", ["Earlier", () => move(-0.25)]], ["ArrowRight", ["Later", () => move(0.25)]],
    ["0", ["Whole iteration", reset]],
  ]);
  const bar = figure.querySelector(".tools");
  for (const [label, act] of actions.values()) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", act);
    bar.append(button);
  }
  figure.addEventListener("keydown", (event) => {
    if (!actions.has(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions.get(event.key)[1]();
  });

  const place = (event, plot) => {
    const box = plot.getBoundingClientRect();
    return low + (high - low) * (event.clientX - box.left) / box.width;
  };
  plots.forEach((plot, index) => {
    const lane = data.lanes[index];
    plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, place(event, plot));
    }, { passive: false });
    plot.addEventListener("dblclick", (event) => zoom(0.25, place(event, plot)));
    plot.addEventListener("pointermove", (event) => {
      const at = 10 * place(event, plot);
      const near = 15 * (high - low) / plot.clientWidth;
      const row = lane.start.findLastIndex((start, i) => start - near <= at && lane.end[i] + near >= at);
      tip.hidden = row < 0;
      if (row < 0) return;
      const many = lane.count.length && lane.count[row] > 1 ? `${lane.count[row]} operations from ` : "";
      const length = time((lane.end[row] - lane.start[row]) / 10);
      const taken = many ? `${time(lane.ns[row] / 1000)} of ${length}` : length;
      tip.textContent = `${many}${lane.names[lane.name[row]]}: ${taken}, at ${time(lane.start[row] / 10)}`;
      const box = figure.getBoundingClientRect();
      tip.style.left = Math.min(event.clientX - box.left + 12, Math.max(0, box.width - tip.offsetWidth)) + "px";
      tip.style.top = event.clientY - box.top + 18 + "px";
    });
    plot.addEventListener("pointerleave", () => { tip.hidden = true; });
  });
}
