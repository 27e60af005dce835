package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/access/token"
	"millrace/store/bus"
	"millrace/websocket/auth"
)

func post(r *rig, target, body string, header ...string) *httptest.ResponseRecorder {
	req := request(r.t, "POST", target, body)
	for i := 0; i < len(header); i += 2 {
		switch header[i] {
		case "method":
			req.Method = header[i+1]
		case "peer":
			req.RemoteAddr = header[i+1]
		case "host":
			req.Host = header[i+1]
		default:
			req.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	r.c.ServePublish(w, req)
	return w
}

func TestPublishHTTP(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		k := r.connect("")
		k.say(`{"subscribe":"news"}`)
		const asJSON = "application/json; charset=utf-8"
		for _, c := range []struct{ body, kind, data string }{
			{"hello", "", `"hello"`},
			{"a \"b\"\n", "text/plain", `"a \"b\"\n"`},
			{"", "", `""`},
			{"x=1", "application/x-www-form-urlencoded", `"x=1"`},
			{"{\"a\":\n [1, 2]}", asJSON, `{"a":[1,2]}`},
			{" null ", "application/vnd.x+json", `null`},
		} {
			w := post(r, "/publish?channel=news", c.body, "Content-Type", c.kind)
			var said struct {
				Published, Epoch string
				Offset           int
			}
			if err := json.Unmarshal(w.Body.Bytes(), &said); w.Code != 200 || err != nil || said.Published != "news" || said.Epoch != r.epoch() || said.Offset == 0 {
				t.Errorf("%q: %d %s", c.body, w.Code, w.Body)
			}
			k.expect("", fmt.Sprintf(`{"message":"news","offset":%d,"data":%s}`, said.Offset, c.data))
		}
		w := post(r, "/publish?channel=news&channel=b", "1", "Content-Type", "application/json")
		if want := fmt.Sprintf(`{"publications":[{"published":"news","offset":7,"epoch":%q},{"published":"b","offset":1,"epoch":%[1]q}]}`+"\n", r.epoch()); w.Body.String() != want {
			t.Errorf("to two: %s, want %s", w.Body, want)
		}
		k.leave()
	})
}

func TestPublishOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		for range 2 {
			if w := post(r, "/publish?channel=a", "x", "Idempotency-Key", "k1"); !strings.Contains(w.Body.String(), `"offset":1,`) {
				t.Errorf("%s", w.Body)
			}
			if w := post(r, "/publish?channel=b&channel=c", "x", "Idempotency-Key", "k1"); strings.Count(w.Body.String(), `"offset":1,`) != 2 {
				t.Errorf("%s", w.Body)
			}
		}
		if w := post(r, "/publish?channel=a", "x", "Idempotency-Key", "k2"); !strings.Contains(w.Body.String(), `"offset":2,`) {
			t.Errorf("%s", w.Body)
		}
	})
}

func TestPublishRefused(t *testing.T) {
	bubble(t, Options{MaxPublish: 10}, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name, target, body string
			header             []string
			status             int
		}{
			{"GET", "/publish?channel=a", "x", []string{"method", "GET"}, 405},
			{"no channel", "/publish", "x", nil, 400},
			{"empty channel", "/publish?channel=", "x", nil, 400},
			{"bad channel", "/publish?channel=%0a", "x", nil, 400},
			{"twice", "/publish?channel=a&channel=a", "x", nil, 400},
			{"many", "/publish?" + strings.Repeat("channel=a&", 101), "x", nil, 400},
			{"bad JSON", "/publish?channel=a", "{", []string{"Content-Type", "application/json"}, 400},
			{"two values", "/publish?channel=a", "1 2", []string{"Content-Type", "application/json"}, 400},
			{"no JSON", "/publish?channel=a", "", []string{"Content-Type", "application/json"}, 400},
			{"fits", "/publish?channel=a", "12345678", nil, 200},
			{"too big as JSON", "/publish?channel=a", "123456789", nil, 413},
			{"too big", "/publish?channel=a", "12345678901", nil, 413},
			{"not UTF-8", "/publish?channel=a", "\xff", nil, 415},
			{"UTF-16", "/publish?channel=a", "x", []string{"Content-Type", "text/plain; charset=utf-16"}, 415},
			{"image", "/publish?channel=a", "x", []string{"Content-Type", "image/png"}, 415},
			{"no type", "/publish?channel=a", "x", []string{"Content-Type", "/"}, 415},
			{"gzip", "/publish?channel=a", "x", []string{"Content-Encoding", "gzip"}, 415},
			{"long key", "/publish?channel=a", "x", []string{"Idempotency-Key", strings.Repeat("k", 129)}, 400},
			{"far", "/publish?channel=a", "x", []string{"peer", "192.0.2.1:5"}, 403},
			{"unknown", "/publish?channel=a", "x", []string{"peer", "somebody"}, 403},
			{"IPv6", "/publish?channel=a", "x", []string{"peer", "[::1]:5"}, 200},
			{"mapped", "/publish?channel=a", "x", []string{"peer", "[::ffff:127.0.0.1]:5"}, 200},
			{"UNIX", "/publish?channel=a", "x", []string{"peer", "@"}, 200},
			{"browser", "/publish?channel=a", "x", []string{"Origin", "http://localhost"}, 403},
			{"browser without", "/publish?channel=a", "x", []string{"Sec-Fetch-Site", "none"}, 403},
			{"proxy", "/publish?channel=a", "x", []string{"X-Forwarded-For", "127.0.0.1"}, 403},
			{"proxy too", "/publish?channel=a", "x", []string{"Forwarded", "for=127.0.0.1"}, 403},
			{"underscores", "/publish?channel=a", "x", []string{"X_forwarded_for", "127.0.0.1"}, 403},
			{"Cloudflare", "/publish?channel=a", "x", []string{"Cf-Connecting-Ip", "127.0.0.1"}, 403},
			{"Akamai", "/publish?channel=a", "x", []string{"True-Client-Ip", "127.0.0.1"}, 403},
			{"Client-IP", "/publish?channel=a", "x", []string{"Client-Ip", "127.0.0.1"}, 403},
			{"Via", "/publish?channel=a", "x", []string{"Via", "1.1 b"}, 403},
			{"CDN-Loop", "/publish?channel=a", "x", []string{"Cdn-Loop", "b"}, 403},
			{"page", "/publish?channel=a", "x", []string{"Referer", "http://localhost/"}, 403},
			{"its own name", "/publish?channel=a", "x", []string{"host", "site.example"}, 403},
			{"rebound name", "/publish?channel=a", "x", []string{"host", "127.0.0.1.evil.example:8080"}, 403},
			{"another address", "/publish?channel=a", "x", []string{"host", "192.0.2.1"}, 403},
			{"localhost", "/publish?channel=a", "x", []string{"host", "LocalHost.:8080"}, 200},
			{"below localhost", "/publish?channel=a", "x", []string{"host", "a.localhost"}, 200},
			{"127.0.0.2", "/publish?channel=a", "x", []string{"host", "127.0.0.2:80"}, 200},
			{"::1", "/publish?channel=a", "x", []string{"host", "[::1]:80"}, 200},
			{"::1 without port", "/publish?channel=a", "x", []string{"host", "[::1]"}, 200},
		} {
			w := post(r, c.target, c.body, c.header...)
			if w.Code != c.status {
				t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.status)
			}
			if w.Code != 200 && (w.Body.Len() < 15 || strings.Count(w.Body.String(), "\n") != 1) {
				t.Errorf("%s is told %q", c.name, w.Body)
			}
		}
	})
}

// A proxy with the settings that nginx has had for twenty years says nothing of
// whom it speaks for.
func TestPublishByOldProxy(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		w := httptest.NewRecorder()
		req := request(t, "POST", "/publish?channel=a", "x")
		req.Proto, req.ProtoMinor = "HTTP/1.0", 0
		if r.c.ServePublish(w, req); w.Code != http.StatusForbidden {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestPublishKeys(t *testing.T) {
	bubble(t, Options{Keys: []string{"0123456789abcdef", "fedcba9876543210"}}, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name, value string
			status      int
		}{
			{"X", "", 401},
			{"Authorization", "Bearer 0123456789abcdef", 200},
			{"Authorization", "bearer fedcba9876543210", 200},
			{"Authorization", "Basic 0123456789abcdef", 401},
			{"Authorization", "Bearer 0123456789abcdeX", 401},
			{"Authorization", "Bearer 0123456789abcde", 401},
			{"X-Api-Key", "fedcba9876543210", 200},
			{"X-Api-Key", "x", 401},
		} {
			w := post(r, "/publish?channel=a", "x", c.name, c.value, "peer", "192.0.2.1:5", "Origin", "https://a")
			if w.Code != c.status || (w.Code == 401) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("%s: %s: %d %s", c.name, c.value, w.Code, w.Body)
			}
		}
	})
}

func TestPublishClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.close()
		if w := post(r, "/publish?channel=a", "x"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// The publications of one client keep their order, whatever each takes; those of
// many are on their way at once, but not of too many.
func TestPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := map[string][]string{}
		now, most, n := 0, 0, 0
		p := newPublisher(func(_ context.Context, m bus.Message) (bus.Message, error) {
			mu.Lock()
			now++
			n++
			most = max(most, now)
			wait := time.Duration(7*n%5) * time.Second
			mu.Unlock()
			time.Sleep(wait)
			mu.Lock()
			defer mu.Unlock()
			now--
			sent[m.Channel] = append(sent[m.Channel], string(m.Data))
			return m, nil
		})
		var sessions [100]session
		done := make([]string, len(sessions))
		for i := range 20 {
			for c := range sessions {
				if err := p.add(&sessions[c], job{message: bus.Message{Channel: fmt.Sprint(c), Data: fmt.Append(nil, i)}, done: func(bus.Message, error) {
					mu.Lock()
					done[c] += fmt.Sprint(i) + " "
					mu.Unlock()
				}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for c, list := range sent {
			for i, text := range list {
				if text != fmt.Sprint(i) {
					t.Fatalf("client %s: %s", c, list)
				}
			}
		}
		for c, text := range done {
			if text != "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 " {
				t.Fatalf("answers of %d: %s", c, text)
			}
		}
		if n != 2000 || most != publishers || p.working != 0 || len(p.lines) != 0 || p.bytes != 0 {
			t.Errorf("%d sent, %d at once; then %d at work, %d lines, %d bytes", n, most, p.working, len(p.lines), p.bytes)
		}
		p.close()
	})
}

func TestPublisherBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublisher(func(ctx context.Context, m bus.Message) (bus.Message, error) {
			<-ctx.Done()
			return m, ctx.Err()
		})
		var failed int
		var mu sync.Mutex
		add := func(s *session) error {
			return p.add(s, job{message: bus.Message{Data: make([]byte, 1<<20-jobCost)}, done: func(_ bus.Message, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				}
			}})
		}
		one, taken := &session{}, 0
		for add(one) == nil {
			taken++
		}
		if taken != waitingEach>>20 {
			t.Errorf("%d MiB of one client wait", taken)
		}
		for add(&session{}) == nil {
			taken++
		}
		if taken != maxWaiting>>20 {
			t.Errorf("%d MiB of all clients wait", taken)
		}
		time.Sleep(time.Minute) // everything takes too long
		synctest.Wait()
		if failed != taken {
			t.Errorf("%d of %d failed in time", failed, taken)
		}
		if err := add(one); err != nil {
			t.Errorf("then %v", err)
		}
		p.close()
		if err := add(one); !errors.Is(err, errDone) {
			t.Errorf("closed: %v", err)
		}
		synctest.Wait()
	})
}

func TestOptionsCheck(t *testing.T) {
	for _, c := range []struct {
		key, says string
		o         Options
	}{
		{"keys[0]", "at least 16", Options{Keys: []string{"short"}}},
		{"keys[1]", "printable", Options{Keys: []string{"0123456789abcdef", "0123456789 abcdef"}}},
		{"keys", "too many", Options{Keys: make([]string, 1001)}},
		{"auth.jwt.secret", "at least 32", Options{Auth: auth.Options{JWT: &token.Options{Secret: "x"}}}},
		{"per_client", "negative", Options{PerClient: -1}},
		{"commands", "negative", Options{Commands: -1}},
		{"commands", "at most", Options{Commands: 1 << 30}},
		{"max_publish", "negative", Options{MaxPublish: -1}},
		{"history.messages", "negative", Options{History: History{Messages: -1}}},
		{"history.age", "off: true", Options{History: History{Age: -1}}},
		{"history.memory", "off: true", Options{History: History{Memory: -1}}},
		{"history.off", "leave one", Options{History: History{Off: true, Messages: 1}}},
		{"bus", "write nats://", Options{Bus: "localhost:4222"}},
		{"bus", "nats://localhost:4222", Options{Bus: "http://localhost:4222"}},
		{"bus", "write nats://", Options{Bus: "nats://a:1,b"}},
		{"bus_name", "without a bus", Options{BusName: "x"}},
		{"bus_name", "letters", Options{Bus: "nats://a", BusName: "x.y"}},
	} {
		if err := c.o.Check()[c.key]; err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.key, err, c.says)
		}
	}
	good := Options{Keys: []string{"0123456789abcdef"}, Bus: "nats://u:p@a:4222, tls://b", BusName: "site_1"}
	for _, o := range []Options{{}, good} {
		if faults := o.Check(); len(faults) != 0 {
			t.Errorf("%v: %v", o, faults)
		}
	}
	for _, secret := range []string{"nats:/u:secret@a", "://secret"} {
		if err := (Options{Bus: secret}).Check()["bus"]; err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", secret, err)
		}
	}
	if got, want := (Options{}).Keep(), (bus.Keep{Messages: 100, Age: 5 * time.Minute, Bytes: 64 << 20, Channels: mostHistories}); got != want {
		t.Errorf("Keep %+v, want %+v", got, want)
	}
	if got := (Options{History: History{Off: true}}).Keep(); got != (bus.Keep{}) {
		t.Errorf("Keep %+v", got)
	}
}
