// Charts of the overview. The server keeps the numbers; this asks for them and draws.
"use strict";

(() => {
  const section = document.querySelector("[data-live]");
  if (!section) return;
  const contact = document.getElementById("contact");
  const EVERY_MS = 2000;
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

  function number(value) {
    if (value === null || value === undefined) return "–";
    return value.toLocaleString(document.documentElement.lang, {
      maximumFractionDigits: value < 10 ? 1 : 0,
    });
  }

  function bytes(value) {
    if (value === null || value === undefined) return "–";
    let unit = 0;
    while (value >= 1024 && unit < UNITS.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return `${number(value)} ${UNITS[unit]}`;
  }

  // Ticks of bytes stand at 2^n, so that they read well.
  const BINARY = Array.from({ length: 50 }, (_, n) => 2 ** n);

  // Colours are those of the style sheet, also after the theme was changed.
  function colour(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    section.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.lines = figure.dataset.lines.split(",");
      this.labels = figure.dataset.labels.split("|");
      this.format = figure.dataset.unit === "bytes" ? bytes : number;
      this.place = figure.querySelector(".plot");
      this.latest = figure.querySelector(".latest");
      this.plot = null;
    }

    show(columns) {
      const data = [columns.time, ...this.lines.map((line) => columns[line])];
      if (this.plot === null) this.make(data);
      else this.plot.setData(data);
      this.say(columns);
    }

    say(columns) {
      const said = [];
      this.latest.replaceChildren();
      this.lines.forEach((line, index) => {
        const value = this.format(columns[line].at(-1));
        const key = document.createElement("span");
        key.className = `key ${index ? "two" : "one"}`;
        this.latest.append(key, `${this.labels[index]} ${value}`);
        said.push(`${this.labels[index]} ${value}`);
      });
      const title = this.figure.querySelector("figcaption").firstChild.textContent.trim();
      this.place.setAttribute("aria-label", `${title}: ${said.join(", ")}`);
    }

    make(data) {
      this.drop();
      const grid = { stroke: colour("--line"), width: 1 };
      const axis = { stroke: colour("--soft"), grid, ticks: grid, font: "11px system-ui" };
      const isBytes = this.figure.dataset.unit === "bytes";
      this.plot = new uPlot(
        {
          width: Math.max(200, this.place.clientWidth),
          height: this.place.clientHeight || 180,
          legend: { show: false },
          cursor: { drag: { x: false, y: false }, points: { show: false } },
          scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
          axes: [
            { ...axis, size: 32, values: (_, ticks) => ticks.map(clock) },
            {
              ...axis,
              size: 70,
              ...(isBytes ? { incrs: BINARY } : {}),
              values: (_, ticks) => ticks.map((tick) => this.format(tick)),
            },
          ],
          series: [
            {},
            ...this.lines.map((_, index) => ({
              label: this.labels[index],
              stroke: colour(index ? "--chart-2" : "--chart-1"),
              width: 1.75,
              points: { show: false },
            })),
          ],
        },
        data,
        this.place,
      );
    }

    resize() {
      if (this.plot) {
        this.plot.setSize({ width: Math.max(200, this.place.clientWidth), height: 180 });
      }
    }

    drop() {
      if (this.plot) this.plot.destroy();
      this.plot = null;
    }
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toLocaleTimeString(document.documentElement.lang, {
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      hour12: false,
    });
  }

  const charts = [...section.querySelectorAll("[data-chart]")].map((one) => new Chart(one));

  async function ask() {
    try {
      const answer = await fetch(section.dataset.live, { cache: "no-store" });
      if (answer.status === 401) location.reload(); // to sign in
      const columns = await answer.json();
      if (!answer.ok) throw new Error(columns.error);
      for (const chart of charts) chart.show(columns);
      contact.hidden = true;
      section.dataset.drawn = String(columns.time.length);
    } catch (error) {
      contact.textContent = `${section.dataset.failed} ${error.message}`;
      contact.hidden = false;
    }
  }

  async function repeat() {
    // Nobody looks at a page that is hidden; it catches up when it is shown.
    if (!document.hidden) await ask();
    setTimeout(repeat, EVERY_MS);
  }

  new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(section);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.forEach((chart) => chart.drop());
    ask();
  });
  document.addEventListener("visibilitychange", () => document.hidden || ask());
  repeat();
})();
