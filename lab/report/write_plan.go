package report

import (
	"strings"

	"millrace/internal/chart"
	"millrace/lab/result"
)

func (w *writer) checks(gates []result.Gate) {
	if len(gates) == 0 {
		return
	}
	w.put("<section id=\"checks\">\n<h2>Checks of the measurement itself</h2>\n<ul class=\"checks\">")
	for _, g := range gates {
		w.put("\n"+`<li class="%s"><span class="sign" aria-hidden="true">%s</span><div><b>%s</b> <span class="status">%s</span>`, g.Status, gateSign(g.Status), g.Name, g.Status)
		w.maybe("<p>%s</p>", keep(g.Detail))
		w.maybe(`<p class="quiet">allowed: %s</p>`, keep(g.Limit))
		w.put("</div></li>")
	}
	w.put("\n</ul></section>")
}

// named are list items: a name, and what is said about it.
func (w *writer) named(name, about string) {
	w.put("<li><b>%s</b>", name)
	w.maybe(": %s", about)
	w.put("</li>")
}

func (w *writer) plan(p *page) {
	w.put("\n<section id=\"plan\">\n<h2>The plan")
	if p.Rule != "" {
		w.put(", made before anything was measured")
	}
	w.put("</h2>\n<dl class=\"plan\">")
	w.maybe("<dt>Question</dt><dd>%s</dd>", keep(p.Question))
	w.maybe("<dt>Claim</dt><dd>%s</dd>", keep(p.Claim))
	w.maybe("<dt>Rule</dt><dd>%s</dd>", keep(p.Rule))
	w.put("\n")
	if len(p.Workloads) > 0 {
		w.put("<dt>Workloads</dt><dd><ul>")
		for _, l := range p.Workloads {
			w.named(l.Name, l.About)
		}
		w.put("</ul></dd>")
	}
	w.put("\n")
	if len(p.Verdicts) > 0 {
		w.put("<dt>Metrics</dt><dd><ul>")
		for _, m := range p.Metrics {
			if m.Decides {
				w.named(m.Name, m.About)
			}
		}
		w.put(`<li class="quiet">the others are shown and get no verdict</li></ul></dd>`)
	}
	w.put("</dl>\n")
	w.arms(p.Arms)
	w.put("</section>")
}

func (w *writer) arms(arms []result.Arm) {
	if len(arms) == 0 {
		return
	}
	w.put("<h3>Arms</h3>\n<ul class=\"arms\">")
	for _, a := range arms {
		w.put("\n<li%s><p><b>%s</b>", class("skipped", a.Skipped != ""), a.Name)
		w.maybe(` <span class="tag">placebo of %s</span>`, a.Placebo)
		w.maybe(" %s", a.About)
		w.maybe(` <span class="quiet">· %s</span>`, a.Version)
		if a.Size > 0 {
			w.put(` <span class="quiet">· executable %s</span>`, chart.Figure(float64(a.Size), "bytes"))
		}
		w.put("</p>\n")
		w.maybe(`<p class="why"><b>Not measured:</b> %s</p>`, a.Skipped)
		if len(a.Command) > 0 {
			w.put("<p><code>%s</code></p>", commandLine(a.Command))
		}
		w.put("</li>")
	}
	w.put("\n</ul>")
}

// end is the machine, the notes and the data.
func (w *writer) end(p *page) {
	w.put("\n<section id=\"machine\">\n<h2>The machine and the run</h2>\n<dl class=\"facts\">")
	for _, f := range p.Facts {
		w.put("<dt>%s</dt><dd>%s</dd>", f[0], f[1])
	}
	w.put("</dl>\n</section>\n")
	if len(p.Notes) > 0 {
		w.put("<section id=\"notes\">\n<h2>Notes</h2>\n<ul>")
		for _, n := range p.Notes {
			w.put("<li>%s</li>", keep(n))
		}
		w.put("</ul>\n</section>")
	}
	w.put("\n<section id=\"data\">\n<h2>The data</h2>\n")
	w.maybe("<p><b>This page does not show everything</b>, to stay small. Left out: %s. The result file has all of it.</p>", strings.Join(p.Thinned, ", "))
	thinned := ""
	if p.RawThinned {
		thinned = "-thinned"
		w.put("\n<p>The raw data within this page is thinned to keep it small: samples are left out, or lines have fewer points. The result file %s.json has all of it.", p.Slug)
	} else {
		w.put("\n<p>The whole result is within this page, as JSON: ")
		if n := len(p.Samples); n > 0 {
			w.put("%s, ", count(n, "sample", "samples"))
		}
		w.put("every verdict, table and line.")
	}
	w.put("\n"+`<button type="button" class="script" id="save" data-name="%s%s.json">Save it as a file</button><span class="noscript"> It stands at the end of this page's source.</span></p>
</section>
</main>
<script type="application/json" id="raw">%s</script>
<script>%s</script>
</body>
</html>
`, p.Slug, thinned, p.Raw, p.JS)
}
