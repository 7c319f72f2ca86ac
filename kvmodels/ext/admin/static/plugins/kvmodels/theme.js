// Sets the colours before the page is painted: those that the user chose, or else those of the system.
(function () {
    "use strict";
    var root = document.documentElement;
    var dark = window.matchMedia("(prefers-color-scheme: dark)");
    function chosen() {
        try { return localStorage.getItem("kvmodels-colours"); } catch (refused) { return null; }
    }
    function show() {
        root.setAttribute("data-bs-theme", chosen() || (dark.matches ? "dark" : "light"));
    }
    dark.addEventListener("change", show);
    document.addEventListener("click", function (event) {
        if (!event.target.closest || !event.target.closest("[data-kv-colours]")) { return; }
        event.preventDefault();
        var next = root.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
        try { localStorage.setItem("kvmodels-colours", next); } catch (refused) { /* for this page only */ }
        root.setAttribute("data-bs-theme", next);
    });
    show();
})();
