package convert

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// What draws stays, what runs or loads goes.
func TestSanitizeSVG(t *testing.T) {
	const head = `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"`
	for in, want := range map[string]string{
		`<svg xmlns="http://www.w3.org/2000/svg" width="5" viewBox="0 0 5 5"><path d="M0 0L5 5" fill="#f00"/></svg>`:                                                                                                                       head + ` width="5" viewBox="0 0 5 5"><path d="M0 0L5 5" fill="#f00"></path></svg>`,
		`<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE svg PUBLIC "a" "b"><!-- c --><svg onload="x()"><script>x()</script><g onclick='y()'>t &lt; 5</g></svg>`:                                                                           head + `><g>t &lt; 5</g></svg>`,
		`<svg><foreignObject><div xmlns="http://www.w3.org/1999/xhtml"><script/></div></foreignObject><a href="javascript:x()"><text>link</text></a></svg>`:                                                                                head + `><a><text>link</text></a></svg>`,
		`<svg xmlns:xlink="http://www.w3.org/1999/xlink"><use xlink:href="#a"/><use href="other.svg#a"/><image href="https://e.org/x.png"/><image href="data:image/png;base64,AAAA"/><image href="data:image/svg+xml;base64,AAAA"/></svg>`: head + `><use xlink:href="#a"></use><use></use><image></image><image href="data:image/png;base64,AAAA"></image><image></image></svg>`,
		`<svg><rect fill="url(#g)" filter="url( '#f' )" mask="url(https://e.org/m)" style="fill:url(x.svg#a)"/></svg>`:                                                                                                                     head + `><rect fill="url(#g)" filter="url( &#39;#f&#39; )"></rect></svg>`,
		`<svg><style>.a{fill:red}</style><style>@import "x";</style><style>.b{background:url("//e.org")}</style></svg>`:                                                                                                                    head + `><style>.a{fill:red}</style><style></style><style></style></svg>`,
		`<svg><style>.a{fill:red}@media (prefers-color-scheme: dark){.a{fill:blue}}@keyframes k{to{r:5px}}</style></svg>`:                                                                                                                  head + `><style>.a{fill:red}@media (prefers-color-scheme: dark){.a{fill:blue}}@keyframes k{to{r:5px}}</style></svg>`,
		`<svg><style>a{mask:url(@media#x)}</style><style>@media{@import "x"}</style><style>@medial{}</style></svg>`:                                                                                                                        head + `><style></style><style></style><style></style></svg>`,
		`<svg xmlns:xlink="http://www.w3.org/1999/xlink"><a id="n" xlink:href="#x" href="https://e.org" target="_top"><set attributeName="href" to="javascript:x()"/><path d="M0 0"/></a></svg>`:                                           head + `><a id="n" target="_top"><path d="M0 0"></path></a></svg>`,
		`<svg><set attributeName="xlink:href" to="javascript:x()"/><animate attributeName="onclick" to="x()"/><animate attributeName="x" to="5"/></svg>`:                                                                                   head + `><animate attributeName="x" to="5"></animate></svg>`,
		`<svg xmlns:h="http://www.w3.org/1999/xhtml"><h:script>x()</h:script><h:img src="x" onerror="y()"/></svg>`:                                                                                                                         head + `></svg>`,
		`<svg xmlns:s="http://www.w3.org/2000/svg"><s:script>x()</s:script><s:g s:onload="x()" OnLoad="x()"/></svg>`:                                                                                                                       head + `><g></g></svg>`,
		`<svg xml:base="https://e.org/" xml:space="preserve"><text>a  b<![CDATA[<script>]]></text></svg>`:                                                                                                                                  head + ` xml:space="preserve"><text>a  b&lt;script&gt;</text></svg>`,
	} {
		got, err := sanitizeSVG([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s:\n%s, %v\nwant\n%s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "no xml", "<html><svg/></html>", "<svg><g></svg>", "<svg>", `<svg>&nbsp;</svg>`,
		`<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><svg>&b;</svg>`, `<!DOCTYPE svg [ ]><svg/>`,
		"<svg>" + strings.Repeat("<g>", 600) + strings.Repeat("</g>", 600) + "</svg>",
		`<?xml version="1.0" encoding="UTF-16"?><svg/>`,
	} {
		if got, err := sanitizeSVG([]byte(in)); !errors.Is(err, ErrSVG) {
			t.Errorf("%.60q: %q, %v", in, got, err)
		}
	}
}

// FuzzSanitizeSVG: what comes out is well-formed, has nothing that runs by any reader's names, and is
// the same when it is sanitised again.
func FuzzSanitizeSVG(f *testing.F) {
	for _, s := range []string{
		`<svg onload="x"><script>1</script><style>a{}</style><use href="#a"/></svg>`,
		`<svg xmlns:x="http://www.w3.org/1999/xlink"><image x:href="data:image/png;base64,AA"/></svg>`,
		`<svg><text>a&amp;b</text><a:b xmlns:a="c"/></svg>`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		out, err := sanitizeSVG(file)
		if err != nil {
			return
		}
		d := xml.NewDecoder(bytes.NewReader(out))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if name := strings.ToLower(e.Name.Local); name == "script" || name == "foreignobject" || e.Name.Space != svgSpace {
				t.Fatalf("%q has %v", out, e.Name)
			}
			for _, a := range e.Attr {
				if name := strings.ToLower(a.Name.Local); strings.HasPrefix(name, "on") || name == "href" && e.Name.Local == "a" || name == "href" && !strings.HasPrefix(strings.TrimSpace(a.Value), "#") && !strings.HasPrefix(strings.TrimSpace(a.Value), "data:image/") {
					t.Fatalf("%q has %v", out, a)
				}
			}
		}
		again, err := sanitizeSVG(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q, again %q, %v", out, again, err)
		}
	})
}
