package websocket_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/websocket/centrifuge"
)

// spokenLines is an answer that comes line by line.
type spokenLines struct {
	t *testing.T
	r *bufio.Reader
}

// next is the next line that is neither empty nor a ping, without what event streams have
// before it.
func (l *spokenLines) next() string {
	l.t.Helper()
	for {
		line, err := l.r.ReadString('\n')
		if err != nil {
			l.t.Fatalf("%q, then %v", line, err)
		}
		line = strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if line != "" && line != "{}" {
			return line
		}
	}
}

func (l *spokenLines) want(texts ...string) {
	l.t.Helper()
	line := l.next()
	for _, text := range texts {
		if !strings.Contains(line, text) {
			l.t.Fatalf("got %s, want %s in it", line, text)
		}
	}
}

// stream asks a path, with a body or without.
func (s *sdkServer) stream(path, body string) *spokenLines {
	s.t.Helper()
	resp := s.request(path, body, nil)
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", path, resp.Status)
	}
	return &spokenLines{s.t, bufio.NewReader(resp.Body)}
}

func (s *sdkServer) request(path, body string, header http.Header) *http.Response {
	s.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestUni are the clients that only listen.
func TestUni(t *testing.T) {
	s := newSDKServer(t, sdkOptions(), false)
	token := sdkToken(t, map[string]any{"sub": "ann", "channels": []string{"own"}, "subscribe": []string{"news"}})
	first := `{"token":"` + token + `","subs":{"news":{}}}`
	query := "?cf_connect=" + url.QueryEscape(first)
	for name, open := range map[string]func() *spokenLines{
		"uni_sse":              func() *spokenLines { return s.stream("/connection/uni_sse"+query, "") },
		"uni_sse, POST":        func() *spokenLines { return s.stream("/connection/uni_sse", first) },
		"uni_http_stream":      func() *spokenLines { return s.stream("/connection/uni_http_stream", first) },
		"uni_http_stream, GET": func() *spokenLines { return s.stream("/connection/uni_http_stream"+query, "") },
		"uni_websocket":        func() *spokenLines { return s.uniSocket(first) },
	} {
		t.Run(name, func(t *testing.T) {
			l := open()
			l.want(`{"connect":{"client":"`, `"subs":{"news":{`, `"own":{`)
			s.publish("news", "1")
			l.want(`{"channel":"news","pub":{"data":1,"offset":`)
			s.publish("own", `{"a":"<b>"}`)
			l.want(`{"channel":"own","pub":{"data":{"a":"<b>"},"offset":`)
		})
	}
	for first, want := range map[string]string{
		`{"token":"` + sdkToken(t, map[string]any{"exp": 1}) + `"}`: `{"disconnect":{"code":3005,`,
		`{"token":"x"}`: `{"disconnect":{"code":3500,`,
		`{"token":"` + token + `","subs":{"secret":{}}}`: `{"disconnect":{"code":3507,`,
		`[]`: `{"disconnect":{"code":3501,`,
		`{}`: `{"disconnect":{"code":3507,`,
	} {
		s.stream("/connection/uni_sse", first).want(want)
	}
}

// uniSocket connects and says one thing.
func (s *sdkServer) uniSocket(first string) *spokenLines {
	s.t.Helper()
	nc, _, _, err := ws.Dial(s.t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/connection/uni_websocket")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	if err := wsutil.WriteClientText(nc, []byte(first)); err != nil {
		s.t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { // ends with the connection
		for {
			text, err := wsutil.ReadServerText(nc)
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if _, err := w.Write(append(text, '\n')); err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() { r.Close() })
	return &spokenLines{s.t, bufio.NewReader(r)}
}

// TestEmulation is a client whose stream and commands are two.
func TestEmulation(t *testing.T) {
	s := newSDKServer(t, sdkOptions(), false)
	token := sdkToken(t, sdkClaims("ann", nil))
	l := s.stream("/connection/http_stream", `{"id":1,"connect":{"token":"`+token+`"}}`)
	var reply centrifuge.Reply
	if err := json.Unmarshal([]byte(l.next()), &reply); err != nil || reply.Connect == nil || len(reply.Connect.Session) < 20 {
		t.Fatalf("%+v, %v", reply, err)
	}
	say := func(session, node, data string) int {
		body, err := json.Marshal(map[string]string{"session": session, "node": node, "data": data})
		if err != nil {
			t.Fatal(err)
		}
		return s.request("/emulation", string(body), nil).StatusCode
	}
	session, node := reply.Connect.Session, reply.Connect.Node
	const two = `{"id":2,"subscribe":{"channel":"news"}}` + "\n" + `{"id":3,"publish":{"channel":"news","data":1}}`
	if got := say(session, node, two); got != http.StatusNoContent {
		t.Errorf("said: %d", got)
	}
	l.want(`{"id":2,"subscribe":{`)
	got := l.next() + l.next()
	if !strings.Contains(got, `{"id":3,"publish":{}}`) || !strings.Contains(got, `{"push":{"channel":"news","pub":{"data":1,`) {
		t.Errorf("published: %s", got)
	}
	for name, got := range map[string][2]int{
		"another session":  {say("x", node, two), http.StatusNoContent},
		"another server":   {say(session, "x", two), http.StatusNotFound},
		"nonsense":         {s.request("/emulation", "nonsense", nil).StatusCode, http.StatusBadRequest},
		"10 MB":            {s.request("/emulation", strings.Repeat("x", 10<<20), nil).StatusCode, http.StatusRequestEntityTooLarge},
		"10 MB to connect": {s.request("/connection/http_stream", strings.Repeat("x", 10<<20), nil).StatusCode, http.StatusRequestEntityTooLarge},
		"GET":              {s.request("/emulation", "", nil).StatusCode, http.StatusMethodNotAllowed},
		"no connect":       {s.request("/connection/sse", "", nil).StatusCode, http.StatusBadRequest},
		"publish by GET":   {s.request("/connection/sse?cf_connect="+url.QueryEscape(`{"id":1,"connect":{}}`+"\n"+two), "", nil).StatusCode, http.StatusBadRequest},
		"another origin":   {s.request("/emulation", "{}", http.Header{"Origin": {"https://app.example"}}).StatusCode, http.StatusForbidden},
		"its stream":       {s.request("/connection/http_stream", "{}", http.Header{"Origin": {"https://app.example"}}).StatusCode, http.StatusForbidden},
		"a wrong token":    {s.request("/connection/http_stream?token=x", "{}", nil).StatusCode, http.StatusUnauthorized},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", name, got[0], got[1])
		}
	}
	if got := say(session, node, `{"id":4,"ping":{}}`); got != http.StatusNoContent {
		t.Errorf("after all that: %d", got)
	}
	l.want(`{"id":4,"ping":{}}`)
	say(session, node, "nonsense")
	l.want(`{"push":{"disconnect":{"code":3501,"reason":"bad request`)
	if rest, err := io.ReadAll(l.r); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		t.Errorf("behind the end came %q, %v", rest, err)
	}
}

// TestPreflight: a page of a site that may connect may say so in JSON.
func TestPreflight(t *testing.T) {
	o := sdkOptions()
	o.Origins = []string{"https://app.example"}
	s := newSDKServer(t, o, false)
	for _, path := range []string{"/emulation", "/connection/http_stream"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://app.example")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if h := resp.Header; resp.StatusCode != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Content-Type") {
			t.Errorf("%s: %s %v", path, resp.Status, h)
		}
	}
}
