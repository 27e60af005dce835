package load

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// protocols are the ways to a server that both drivers serve.
func protocols(t *testing.T, handler http.HandlerFunc, run func(t *testing.T, c Config)) {
	t.Helper()
	for name, protocol := range map[string]Protocol{"http1": HTTP1, "https": HTTP1, "http2": HTTP2} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(handler)
			if s.EnableHTTP2 = protocol == HTTP2; name == "http1" {
				s.Start()
			} else {
				s.StartTLS()
			}
			defer s.Close()
			run(t, Config{URL: s.URL, Protocol: protocol, Insecure: true})
		})
	}
}

// A scenario: each visitor logs in with a name of its own, a token from a page and a
// cookie, and is known afterwards.
func TestScenario(t *testing.T) {
	var mu sync.Mutex // guards names and seen
	names, seen := map[string]string{}, map[string]int{}
	var next atomic.Int64
	handler := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		session := ""
		if c, err := r.Cookie("session"); err == nil {
			session = c.Value
		}
		switch r.Method + " " + r.URL.Path {
		case "GET /login":
			if session != "" {
				t.Errorf("a new visitor has the session %s", session)
			}
			id := fmt.Sprint(next.Add(1))
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "s" + id, Path: "/"})
			fmt.Fprintf(w, `<input name="csrf" value="token&%s">`, id)
		case "POST /login":
			if "token&"+strings.TrimPrefix(session, "s") != r.FormValue("csrf") {
				t.Errorf("session %q came with token %q", session, r.FormValue("csrf"))
			}
			names[session] = r.FormValue("user")
			seen[r.FormValue("user")]++
			w.Header().Set("Location", "/me/"+session)
			w.WriteHeader(http.StatusSeeOther)
		case "GET /me/" + session:
			fmt.Fprintf(w, `{"user": {"name": %q, "roles": ["a", "b"]}}`, names[session])
		default:
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
	}
	protocols(t, handler, func(t *testing.T, c Config) {
		mu.Lock()
		clear(seen)
		mu.Unlock()
		steps, err := ReadScenario(strings.NewReader(`
requests:
  - path: /login
    expect: [status 200, "body contains csrf"]
    take: {token: 'body name="csrf" value="([^"]+)"'}
  - name: log in
    path: /login
    form: ["user={{user}}", "csrf={{token}}"]
    expect: [status 303]
    take: {where: header Location}
  - path: "{{where}}"
    expect: ["header Content-Type: text/plain; charset=utf-8", "json user.name = {{user}}", "json $.user.roles[1] = b"]
`))
		if err != nil {
			t.Fatal(err)
		}
		data, err := ReadData(strings.NewReader("user,other\nAnn & Bob,1\n\"Carl, the \"\"great\"\"\",2\nDörte,3\n"))
		if err != nil {
			t.Fatal(err)
		}
		c.Steps, c.Data, c.Cookies, c.Connections, c.Threads, c.Requests = steps, data, true, 4, 2, 120
		r := exactly(t, c)
		// Rounds that end with the load are not whole.
		if len(r.Steps) != 3 || r.Steps[1].Name != "log in" || r.Steps[2].Requests < 36 || r.Steps[2].Requests > 40 || r.Steps[2].Latency.Count() != r.Steps[2].Requests {
			t.Errorf("%d steps, the last with %d requests", len(r.Steps), r.Steps[2].Requests)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != 3 || seen["Ann & Bob"] < 10 || seen[`Carl, the "great"`] < 10 || seen["Dörte"] < 10 {
			t.Errorf("users: %v", seen)
		}
	})
}

// What is not as expected is counted and in no latency, and a visitor to whom it
// happens begins anew.
func TestExpectations(t *testing.T) {
	var n atomic.Int64
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/b" && n.Add(1)%5 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, `{"path": %q}`, r.URL.Path)
	}, func(t *testing.T, c Config) {
		n.Store(0)
		c.Connections, c.Requests, c.Duration = 1, 140, time.Minute
		c.Steps = []Step{{Path: "/a"}, {Path: "/b", Expect: []string{"status 2xx"}}, {Path: "/c"}}
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		consistent(t, r)
		// Of five rounds one is a request short.
		if r.Requests != 140 || r.Errors.Unexpected != 10 || r.Errors.Sum() != 10 || r.Latency.Count() != 130 || r.Steps[1].Failed != 10 || r.Steps[2].Requests != 40 {
			t.Errorf("%d requests, errors %+v, %d latencies, steps %d %d %d", r.Requests, r.Errors, r.Latency.Count(), r.Steps[0].Requests, r.Steps[1].Requests, r.Steps[2].Requests)
		}
		if want := "GET /b was answered with status 500, and 2xx was expected"; r.Errors.First != want {
			t.Errorf("the first error is %q, want %q", r.Errors.First, want)
		}
	})
}

func TestChecks(t *testing.T) {
	h := &received{status: 404, head: http.Header{"X-A": {"b", "c"}}, body: []byte(`{"a": {"b": [1, {"c": "d=e"}]}, "n": 12345678901234567890, "": null}`)}
	for said, fails := range map[string]string{
		"status 404": "", "status 200,404": "", "status 4xx": "", "status 200": "status 404, and 200 was expected",
		"header X-A": "", "header x-a: b, c": "", "header X-A: b": `not "b, c"`, "header X-B": "there is no header X-B",
		`body contains "b": [1`: "", "body contains zz": "it begins with",
		"json a.b[0] = 1": "", "json $.a.b[1].c = d=e": "", "json a.b.0": "", "json n = 12345678901234567890": "", `json a.b[1] = {"c":"d=e"}`: "",
		"json a.b[2]": "the JSON has no a.b[2]", "json a.c.d": "has no", "json a.b[0] = 2": `not "1"`,
	} {
		c, err := readCheck(said)
		if err != nil {
			t.Errorf("%s: %v", said, err)
			continue
		}
		err = c.wrong(h, nil)
		if (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
			t.Errorf("%s: %v, want %q", said, err, fails)
		}
	}
	if c, _ := readCheck("json a"); c.wrong(&received{body: []byte("<p>")}, nil) == nil {
		t.Error("what is not JSON has a value")
	}
}

// What comes back to HEAD has no body, whatever its head says, and methods and bodies
// of every kind arrive as they were given.
func TestMethods(t *testing.T) {
	for _, method := range []string{"HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		protocols(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if want := map[bool]string{true: "{{ text }} %7B", false: ""}[method == "PUT"]; r.Method != method || err != nil || string(body) != want {
				t.Errorf("%s with %q, %v", r.Method, body, err)
			}
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "hello")
		}, func(t *testing.T, c Config) {
			c.Request.Method, c.Connections, c.Requests = method, 2, 20
			if method == "PUT" {
				text := "{{ text }} %7B"
				c.Request.Body = &text
				c.Data = &Data{Columns: []string{"text"}, Rows: [][]string{{"{{ text }}"}}}
			}
			if r := exactly(t, c); r.Body != map[bool]uint64{true: 0, false: 100}[method == "HEAD"] || r.Connect.Count() != 2 {
				t.Errorf("%d bytes of bodies on %d connections", r.Body, r.Connect.Count())
			}
		})
	}
}

func TestOneShot(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }, func(t *testing.T, c Config) {
		c.OneShot, c.Connections, c.Requests = true, 3, 60
		if r := exactly(t, c); r.Connect.Count() < 60 {
			t.Errorf("%d connections for 60 requests", r.Connect.Count())
		}
	})
}

// The server is asked as often as was said, whatever becomes of the requests.
func TestExactRequests(t *testing.T) {
	var asked atomic.Int64
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) % 10 {
		case 3:
			panic(http.ErrAbortHandler)
		case 5:
			w.WriteHeader(http.StatusBadGateway)
		}
	}, func(t *testing.T, c Config) {
		asked.Store(0)
		c.Requests, c.Connections, c.Duration = 200, 8, time.Minute
		r, err := Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		consistent(t, r)
		if asked.Load() != 200 || r.Requests != 180 || r.Errors.Closed+r.Errors.Protocol != 20 {
			t.Errorf("asked %d times; %d answered, errors %+v", asked.Load(), r.Requests, r.Errors)
		}
	})
}

// The client's certificate, the authorities it trusts, the name it asks for, and
// the address that it connects to are its own to say.
func TestTLSOptions(t *testing.T) {
	for _, protocol := range []Protocol{HTTP1, HTTP2} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.TLS.PeerCertificates) != 1 || r.TLS.ServerName != "example.com" || r.Host != "site.test" {
				t.Errorf("%d certificates for %s at %s", len(r.TLS.PeerCertificates), r.TLS.ServerName, r.Host)
			}
		}))
		s.EnableHTTP2 = true
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		c := Config{
			URL: "https://site.test/", Protocol: protocol, ConnectTo: s.Listener.Addr().String(), Connections: 2, Requests: 10,
			TLS: &tls.Config{RootCAs: roots, ServerName: "example.com", Certificates: s.TLS.Certificates},
		}
		exactly(t, c)
		c.TLS = &tls.Config{RootCAs: roots, ServerName: "site.test", Certificates: s.TLS.Certificates}
		if r, err := Run(t.Context(), c); err == nil || r.Requests > 0 {
			t.Errorf("the certificate of example.com did for site.test: %v", err)
		}
		s.Close()
	}
	// It is the same without TLS.
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "site.test" {
			t.Errorf("asked at %s", r.Host)
		}
	})
	exactly(t, Config{URL: "http://site.test/", ConnectTo: strings.TrimPrefix(u, "http://"), Connections: 2, Requests: 10})
}

func TestDataRefuses(t *testing.T) {
	for text, says := range map[string]string{"": "no rows", "a,b\n": "no rows", "a,a\n1,2\n": "column", "number\n1\n": "column", "a b\n1\n": "column", "a,b\n1\n": "wrong number of fields"} {
		if _, err := ReadData(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	for text, says := range map[string]string{"": "no requests", "requests: []": "no requests", "requests:\n  - pth: /": "pth", "x: 1": "x"} {
		if _, err := ReadScenario(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// FuzzRequest: whatever values there are, net/http reads one request, with the values
// where they belong.
func FuzzRequest(f *testing.F) {
	f.Add("/a", "b", "c", "d")
	f.Add("/a b\r\nX: y", "b\r\nX: y", "", "{{c}}&=+\x00")
	f.Add("/?#", "\xff", "äöü", "%41")
	f.Fuzz(func(t *testing.T, path, value, body, field string) {
		form := []string{"a=b", "x={{field}}"}
		text := "<{{body}}>"
		for _, step := range []Step{{Path: "/{{path}}", Header: map[string]string{"X-Value": "<{{value}}>"}, Body: &text}, {Path: "/", Form: form}} {
			p, err := Config{
				URL: "http://127.0.0.1:1/", Steps: []Step{step},
				Data: &Data{Columns: []string{"path", "value", "body", "field"}, Rows: [][]string{{path, value, body, field}}},
			}.plan()
			if err != nil {
				t.Fatal(err)
			}
			v := p.newVisitor(newSupply(p, 0))
			in := bufio.NewReader(bytes.NewReader(p.steps[0].text(nil, v)))
			r, err := http.ReadRequest(in)
			if err != nil {
				if strings.ContainsAny(path, "%?[]") || strings.HasPrefix(path, "/") { // percent signs are the caller's
					return
				}
				t.Fatalf("net/http cannot read it: %v", err)
			}
			got, err := io.ReadAll(r.Body)
			if err != nil || in.Buffered() > 0 {
				t.Fatalf("%v, %d bytes behind it", err, in.Buffered())
			}
			if step.Form != nil {
				form, err := url.ParseQuery(string(got))
				if err != nil || form.Get("x") != field || form.Get("a") != "b" || len(form) != 2 {
					t.Errorf("form %q, %v", got, err)
				}
				continue
			}
			if string(got) != "<"+body+">" || len(r.Header) != 2 || !strings.HasPrefix(r.Header.Get("X-Value"), "<") {
				t.Errorf("body %q, header %v", got, r.Header)
			}
		}
	})
}
