package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
)

// hinted is way.ask with the links of the answers before the last.
func hinted(w *way, target string, head ...string) (res *http.Response, links []string) {
	ctx := httptrace.WithClientTrace(w.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		links = append(links, fmt.Sprint(code, " ", strings.Join(h["Link"], ", ")))
		return nil
	}})
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, w.base+target, http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	if res, err = w.client.Do(r); err != nil {
		w.Fatal(err)
	}
	_ = res.Body.Close()
	return res, links
}

func TestEarlyHints(t *testing.T) {
	up := application(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		fmt.Fprint(w, "page")
	})
	const links = "</a.css>; rel=preload; as=style, </b.js>; rel=modulepreload"
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /: {proxy: %s, early_hints: ['</a.css>; rel=preload; as=style', '</b.js>; rel=modulepreload']}\n", up), func(w *way) {
		res, early := hinted(w, "/?type=text/html", "Sec-Fetch-Mode", "navigate")
		want := "[103 " + links + "]"
		if !strings.HasSuffix(w.Name(), "h2") && !strings.HasSuffix(w.Name(), "h3") {
			want = "[]"
		}
		if got := fmt.Sprint(early); got != want || res.StatusCode != 200 || res.Header.Get("Link") != links {
			w.Errorf("%s before %s with %q, want %s", got, res.Status, res.Header.Get("Link"), want)
		}
		if _, early = hinted(w, "/?type=text/html", "Sec-Fetch-Mode", "cors"); early != nil {
			w.Errorf("a script gets %v", early)
		}
		if res, _ = hinted(w, "/?type=text/css", "Sec-Fetch-Mode", "cors"); res.Header.Get("Link") != "" {
			w.Errorf("a style sheet has %v", res.Header)
		}
	})
}

// TestInterimAnswersHaveNoLength: what an application says in one that has no meaning
// there does not reach the client (RFC 9110, 8.6).
func TestInterimAnswersHaveNoLength(t *testing.T) {
	up := untyped(t)
	everyWay(t, fmt.Sprintf("sites:\n- routes:\n    /proxy/: {proxy: %[1]s}\n    /cache/: {cache: %[1]s}\n", up), func(w *way) {
		for _, job := range []string{"proxy", "cache"} {
			var early []textproto.MIMEHeader
			ctx := httptrace.WithClientTrace(w.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				early = append(early, h)
				return nil
			}})
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/"+job+"/early"+strings.ReplaceAll(w.Name(), "/", "-"), http.NoBody)
			if err != nil {
				w.Fatal(err)
			}
			res, err := w.client.Do(r)
			if err != nil {
				w.Fatal(err)
			}
			_ = res.Body.Close()
			if len(early) != 1 || early[0].Get("Link") == "" || early[0]["Content-Length"] != nil || early[0]["Transfer-Encoding"] != nil || early[0]["Content-Type"] != nil {
				w.Errorf("%s: %v", job, early)
			}
			if res.ContentLength != int64(len(untypedPage)) {
				w.Errorf("%s: the answer has the length %d", job, res.ContentLength)
			}
		}
	})
}
