// The flame graph's behaviour. Boxes are nested <svg class="f"> elements in depth-first order;
// their x and width are percentages of the page: a picture of any width needs no layout.
"use strict";
(function () {
	var root = document.getElementById("sonde");
	var boxes = Array.prototype.slice.call(root.getElementsByClassName("f"));
	var details = document.getElementById("details");
	var matched = document.getElementById("matched");
	var reset = document.getElementById("reset");
	var input = document.getElementById("q");
	var bar = document.getElementById("header");
	var CELL = 7.3; // width of a character of this font, measured below
	var ROW = +root.getAttribute("data-row");
	var OPERATOR = /^operator(\(\)|\[\]|[<>=+*\/%^&|!~-]*)/;

	boxes.forEach(function (box, i) {
		var lines = box.firstElementChild.textContent.split("\n");
		box.sonde = {
			index: i, name: lines[0].replace(/ \(inlined\)$/, ""),
			// The numbers first: a long name may run off the page.
			title: [lines[1], lines[0]].concat(lines.slice(2)).join(" \u2014 "),
			x: parseFloat(box.getAttribute("x")),
			w: parseFloat(box.getAttribute("width")),
			y: +box.getAttribute("y"), label: box.lastElementChild
		};
	});

	function measure() {
		var probe = details.cloneNode(false);
		probe.removeAttribute("id");
		probe.textContent = "mmmmmmmmmm";
		details.parentNode.appendChild(probe);
		var w = probe.getComputedTextLength() / 10;
		probe.remove();
		if (w > 0)
			CELL = w;
	}

	// A name without the insides of its brackets: f<..>(..), as src/view/name.c has it.
	function withoutArguments(name) {
		var out = "", depth = 0, hidden = 0, i, c;
		for (i = 0; i < name.length; i++) {
			var op = OPERATOR.exec(name.slice(i, i + 12));
			if (op) {
				if (!hidden)
					out += op[0];
				i += op[0].length - 1;
				continue;
			}
			c = name[i];
			var arrow = c === ">" && name[i - 1] === "-";
			if (depth && !arrow && ")>]}".indexOf(c) >= 0) {
				if (hidden === depth)
					hidden = 0;
				depth--;
			}
			if (!hidden)
				out += c;
			if ("(<[{".indexOf(c) < 0)
				continue;
			depth++;
			var where = !i || (c === "(" && ":.".indexOf(name[i - 1]) >= 0);
			var empty = ")>".indexOf(name[i + 1]) >= 0;
			if (!hidden && !where && !empty && "<(".indexOf(c) >= 0) {
				hidden = depth;
				out += "\u2026";
			}
		}
		return out;
	}

	// What fits of a name: brackets are emptied, then qualifiers go, then the end.
	function fit(box, columns) {
		var s = box.sonde, name = s.name;
		if (name.length <= columns)
			return name;
		if (s.brief === undefined)
			s.brief = withoutArguments(name);
		name = s.brief;
		var qualifier = name.indexOf(" ") < 0 ? /(::|\/)(?=.)/ : /::(?=.)/;
		for (var part; name.length > columns && (part = qualifier.exec(name));)
			name = name.slice(part.index + part[0].length);
		return name.length <= columns ? name : name.slice(0, columns - 1) + "\u2026";
	}

	// Cuts each label to the width of its box; what is hidden is not touched.
	function label() {
		var page = root.clientWidth || window.innerWidth;
		boxes.forEach(function (box) {
			if (box.classList.contains("gone"))
				return;
			var px = parseFloat(box.getAttribute("width")) / 100 * page;
			var columns = Math.floor((px - 6) / CELL);
			var text = columns < 3 ? "" : fit(box, columns);
			if (box.sonde.label.textContent !== text)
				box.sonde.label.textContent = text;
		});
	}

	function place(box, x, w) {
		box.setAttribute("x", x + "%");
		box.setAttribute("width", w + "%");
	}

	function zoom(target) {
		var from = target ? target.sonde.x : 0, span = target ? target.sonde.w : 100;
		var depth = target ? target.sonde.y : -1, slack = 1e-4;
		boxes.forEach(function (box) {
			var s = box.sonde, above = s.y < depth;
			var right = s.x + s.w, end = from + span;
			var inside = !above && s.x >= from - slack && right <= end + slack;
			var holds = above && s.x <= from + slack && right >= end - slack;
			box.classList.toggle("gone", !inside && !holds);
			box.classList.toggle("path", holds);
			if (holds)
				place(box, 0, 100);
			else if (inside)
				place(box, (s.x - from) / span * 100, s.w / span * 100);
		});
		reset.classList.toggle("gone", !target);
		label();
	}

	function search(text) {
		var expression = null, covered = 0, until = -1;
		input.classList.remove("wrong");
		try {
			expression = text ? new RegExp(text, "i") : null;
		} catch (e) {
			input.classList.add("wrong");
		}
		boxes.forEach(function (box) {
			var s = box.sonde;
			var hit = !!expression && s.index > 0 && expression.test(s.name);
			box.classList.toggle("hit", hit);
			// Boxes come depth first: whatever starts before `until` stands on a hit.
			if (hit && s.x >= until - 1e-6) {
				covered += s.w;
				until = s.x + s.w;
			}
		});
		matched.textContent = expression ? "matched " + covered.toFixed(1) + "%" : "";
	}

	function show(box) {
		details.textContent = box ? box.sonde.title : details.getAttribute("data-hint");
	}

	function boxOf(node) {
		return node && node.closest ? node.closest(".f") : null;
	}

	function everything() {
		input.value = "";
		search("");
		zoom(null);
	}

	root.addEventListener("click", function (e) {
		var box = boxOf(e.target);
		if (box)
			zoom(box.sonde.index ? box : null);
	});
	root.addEventListener("mouseover", function (e) {
		show(boxOf(e.target) || boxOf(document.activeElement));
	});
	root.addEventListener("focusin", function (e) { show(boxOf(e.target)); });
	reset.addEventListener("click", function () { zoom(null); });
	input.addEventListener("input", function () { search(input.value); });
	["find", "shade"].forEach(function (id) {
		document.getElementById(id).classList.remove("gone");
	});

	// Left and right: the neighbours in the picture; up and down: caller and callee.
	function step(box, key) {
		var s = box.sonde, i, o;
		if (key === "ArrowUp" || key === "ArrowLeft") {
			for (i = s.index - 1; i >= 0; i--) {
				o = boxes[i].sonde;
				if (key === "ArrowUp" ? o.y === s.y - ROW : o.y === s.y)
					break;
			}
		} else {
			for (i = s.index + 1; i < boxes.length; i++) {
				o = boxes[i].sonde;
				var callee = o.y === s.y + ROW && o.x < s.x + s.w;
				if (key === "ArrowDown" ? callee : o.y === s.y)
					break;
			}
		}
		if (boxes[i] && !boxes[i].classList.contains("gone"))
			boxes[i].focus();
	}

	document.addEventListener("keydown", function (e) {
		var box = boxOf(document.activeElement), typing = document.activeElement === input;
		if (e.key === "Escape") {
			if (typing)
				input.blur();
			everything();
		} else if (e.key === "f" && (e.ctrlKey || e.metaKey) || e.key === "/" && !typing) {
			e.preventDefault();
			input.focus();
			input.select();
		} else if (typing || !box) {
			return;
		} else if (e.key === "Enter" || e.key === " ") {
			e.preventDefault();
			zoom(box.sonde.index ? box : null);
		} else if (e.key.indexOf("Arrow") === 0) {
			e.preventDefault();
			step(box, e.key);
		}
	});

	window.addEventListener("scroll", function () {
		bar.setAttribute("transform", "translate(0," + window.scrollY + ")");
	});
	window.addEventListener("resize", label);
	measure();
	label();
	show(null);
})();
