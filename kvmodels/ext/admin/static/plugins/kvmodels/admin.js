// Comfort only; every page works without it.
(function () {
    "use strict";
    document.addEventListener("change", function (event) {
        var box = event.target;
        if (box.matches("[data-kv-all]")) {
            document.querySelectorAll("[data-kv-row]").forEach(function (one) { one.checked = box.checked; });
        }
        if (box.matches("[data-kv-submit]")) { box.form.submit(); }
        if (box.matches("[data-kv-none]")) {
            var input = document.getElementById(box.getAttribute("data-kv-none"));
            if (input) { input.readOnly = box.checked; if (box.checked) { input.value = ""; } }
        }
    });
})();
