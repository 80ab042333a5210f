(() => {
  "use strict";
  const root = document.documentElement;

  // Theme: the system's, or the reader's choice. Plot colours are CSS variables, so that they follow.
  const order = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  const apply = (theme) => {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
  };
  const remembered = () => {
    try { return localStorage.getItem("lengthwise-theme"); } catch { return null; }
  };
  const remember = (theme) => {
    try { localStorage.setItem("lengthwise-theme", theme); } catch { /* storage may be closed */ }
  };
  const asked = location.hash.startsWith("#theme=") ? location.hash.slice(7) : remembered();
  apply(order.includes(asked) ? asked : "system");
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(button.dataset.theme) + 1) % order.length];
    apply(next);
    remember(next);
  });

  // A plot that cannot be drawn shows the picture that browsers without scripts get.
  const showPicture = (figure) => {
    const picture = new DOMParser().parseFromString(
      figure.querySelector("noscript").textContent, "text/html").querySelector("picture");
    figure.querySelector(".canvas").replaceChildren(picture);
  };

  const draw = async (figure) => {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    try {
      await window.vegaEmbed(figure.querySelector(".canvas"), spec, {
        mode: "vega-lite", renderer: "svg", actions: false, ast: true,
        tooltip: { theme: "report" },
      });
      figure.dataset.state = "drawn";
    } catch (error) {
      console.error(`plot ${figure.id}:`, error);
      showPicture(figure);
      figure.dataset.state = "picture";
    }
  };
  Promise.all([...document.querySelectorAll("figure.plot")].map(draw))
    .then(() => { root.dataset.plots = "ready"; });
})();
