package channels

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/frame"
	"millrace/websocket/hub"
)

func TestCommands(t *testing.T) {
	o := everybody()
	o.Presence = false
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		k.expect(`{"ping":true,"id":1}`, `{"pong":true,"id":1}`)
		k.expect(`{"subscribe":"news","id":"a"}`, `{"subscribed":"news","id":"a","epoch":"EPOCH","offset":0}`)
		k.expect(`{"publish":"news","data":{"a": [1, 2]},"id":2}`, `{"message":"news","offset":1,"data":{"a":[1,2]}}`, `{"published":"news","id":2,"offset":1}`)
		k.expect(`{"publish":"other","data":null}`, `{"published":"other","offset":1}`)
		said := k.say(`{"history":"news","id":3}`)
		if len(said) != 1 || !strings.HasPrefix(said[0], `{"history":"news","id":3,"epoch":"`+r.epoch()+`","offset":1,"complete":false,"messages":[{"offset":1,"data":{"a":[1,2]},"time":`) {
			t.Errorf("history: %s", said)
		}
		k.expect(`{"history":"news","epoch":"`+r.epoch()+`","offset":1}`, `{"history":"news","epoch":"EPOCH","offset":1,"complete":true,"messages":[]}`)
		k.expect(`{"presence":"news"}`, `{"error":"presence is not kept here","code":"not_found","channel":"news"}`)
		k.expect(`{"unsubscribe":"news","id":5}`, `{"unsubscribed":"news","id":5}`)
		k.expect(`{"unsubscribe":"news"}`, `{"error":"you are not subscribed to this channel","code":"not_found","channel":"news"}`)
		k.expect(`{"publish":"news","data":1}`, `{"published":"news","offset":2}`)
		k.closedWith(0)
		r.turn(func() { r.c.message(k.s, frame.Binary, []byte(`{"ping":true}`)) })
		k.closedWith(frame.Unsupported)
		k.leave()
	})
}

func TestRecovery(t *testing.T) {
	bubble(t, Options{History: History{Messages: 3}}, func(t *testing.T, r *rig) {
		k := r.connect("")
		for i := range 5 {
			r.publish("news", fmt.Sprint(i+1))
		}
		at := func(epoch string, offset int) string {
			return fmt.Sprintf(`{"subscribe":"news","epoch":%q,"offset":%d}`, epoch, offset)
		}
		k.expect(at(r.epoch(), 3), `{"subscribed":"news","epoch":"EPOCH","offset":5,"recovered":true}`,
			`{"message":"news","offset":4,"data":4}`, `{"message":"news","offset":5,"data":5}`)
		// A second subscription replaces the first: nothing comes twice.
		k.expect(at(r.epoch(), 5), `{"subscribed":"news","epoch":"EPOCH","offset":5,"recovered":true}`)
		r.publish("news", "6")
		k.expect("", `{"message":"news","offset":6,"data":6}`)
		k.expect(at(r.epoch(), 1), `{"subscribed":"news","epoch":"EPOCH","offset":6,"recovered":false}`,
			`{"message":"news","offset":4,"data":4}`, `{"message":"news","offset":5,"data":5}`, `{"message":"news","offset":6,"data":6}`)
		k.expect(`{"subscribe":"nothing","epoch":"of before","offset":6}`, `{"subscribed":"nothing","epoch":"EPOCH","offset":0,"recovered":false}`)
		k.leave()
	})
}

func TestPermissions(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		if _, err := r.c.Connect(request(t, "GET", "/ws", ""), nil); err == nil {
			t.Error("connected without a token")
		} else if f, ok := errors.AsType[*Refusal](err); !ok || f.Status != 401 {
			t.Errorf("refused with %v", err)
		}
		k := r.connect(tokenFor(t, map[string]any{"sub": "ann", "subscribe": []string{"news"}, "publish": []string{"out"}, "presence": []string{"news"}}))
		for command, kind := range map[string]string{
			`{"subscribe":"out"}`:              "forbidden",
			`{"subscribe":"out","joins":true}`: "forbidden",
			`{"history":"out"}`:                "forbidden",
			`{"publish":"news","data":1}`:      "forbidden",
			`{"presence":"out"}`:               "forbidden",
			`{"token":"x"}`:                    "unauthorized",
		} {
			said := k.say(command)
			if len(said) != 1 || !strings.Contains(said[0], `"code":"`+kind+`"`) {
				t.Errorf("%s: %s, want %s", command, said, kind)
			}
		}
		for _, command := range []string{`{"subscribe":"news","joins":true}`, `{"publish":"out","data":1}`, `{"presence":"news"}`} {
			if said := strings.Join(k.say(command), ""); strings.Contains(said, "error") {
				t.Errorf("%s: %s", command, said)
			}
		}
		k.leave()
	})
}

func TestPresence(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		all := []string{"*"}
		claims := func(user string) map[string]any {
			return map[string]any{"sub": user, "info": map[string]int{"age": 7}, "subscribe": all, "presence": all}
		}
		ann, bob := r.connect(tokenFor(t, claims("ann"))), r.connect(tokenFor(t, claims("bob")))
		ann.say(`{"subscribe":"chat","joins":true}`)
		said := bob.say(`{"subscribe":"chat"}`)
		if len(said) != 1 || !strings.Contains(said[0], `"client":"`+bob.s.member.Client+`"`) || len(bob.s.member.Client) != 12 {
			t.Errorf("bob is told %s", said)
		}
		member := `{"client":"` + bob.s.member.Client + `","user":"bob","info":{"age":7}}`
		ann.expect("", `{"join":"chat","member":`+member+`}`)
		said = ann.say(`{"presence":"chat"}`)
		if len(said) != 1 || !strings.Contains(said[0], member) || strings.Count(said[0], `"client"`) != 2 {
			t.Errorf("presence: %s", said)
		}
		bob.leave()
		ann.expect("", `{"leave":"chat","member":`+member+`}`)
		ann.leave()
	})
}

func TestLongAnswersAreCut(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		large := quoted20k()
		for range 4 {
			r.publish("news", large)
		}
		k := r.connect("")
		said := k.say(`{"history":"news","epoch":"` + r.epoch() + `","offset":0}`)
		var h struct {
			Complete bool
			Messages []struct{ Offset int }
		}
		if err := json.Unmarshal([]byte(said[0]), &h); err != nil || h.Complete || len(h.Messages) != 1 || h.Messages[0].Offset != 4 {
			t.Errorf("history %v %.100s", err, said)
		}
		members := make([]bus.Member, 2000)
		for i := range members {
			members[i] = bus.Member{Client: "abcdefghijkl", Info: []byte(`{"a":"0123456789"}`)}
		}
		b := r.c.members("news", nil, members, nil)
		var p struct {
			Members []json.RawMessage
			More    int
		}
		if err := json.Unmarshal(b, &p); err != nil || len(p.Members)+p.More != len(members) || len(b) > 33<<10 || p.More == 0 {
			t.Errorf("presence: %v, %d and %d more in %d bytes", err, len(p.Members), p.More, len(b))
		}
		members = []bus.Member{{Client: "a", Info: []byte("{broken")}}
		if b := r.c.members("news", nil, members, nil); !json.Valid(b) {
			t.Errorf("a broken member makes %s", b)
		}
		k.leave()
	})
}

func quoted20k() string { return `"` + strings.Repeat("x", 20<<10) + `"` }

func TestBounds(t *testing.T) {
	o := everybody()
	o.Presence = false
	o.PerClient, o.MaxPublish = 3, 10
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		for i := range 3 {
			k.say(fmt.Sprintf(`{"subscribe":"c%d"}`, i))
		}
		k.expect(`{"subscribe":"c9"}`, `{"error":"you are subscribed to 3 channels, and more are not allowed: unsubscribe from some","code":"too_many","channel":"c9"}`)
		k.expect(`{"subscribe":"c0"}`, `{"subscribed":"c0","epoch":"EPOCH","offset":0}`)
		k.expect(`{"unsubscribe":"c1"}`, `{"unsubscribed":"c1"}`)
		k.expect(`{"subscribe":"c9"}`, `{"subscribed":"c9","epoch":"EPOCH","offset":0}`)
		k.expect(`{"publish":"c","data":"12345678"}`, `{"published":"c","offset":1}`)
		k.expect(`{"publish":"c","data":"123456789"}`, `{"error":"a publication has at most 10 bytes, this one 11","code":"too_big","channel":"c"}`)
		k.expect(`{"publish":"c","data":"12345678"     }`, `{"published":"c","offset":2}`)
		k.leave()
	})
}

func TestQuestionsAtOnce(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		k := r.connect("")
		r.bus.hold = true
		for range maxAsking {
			k.expect(`{"history":"news"}`)
		}
		k.expect(`{"history":"news"}`, `{"error":"too many questions at once: wait for the answers","code":"too_many","channel":"news"}`)
		k.expect(`{"presence":"news"}`, `{"error":"too many questions at once: wait for the answers","code":"too_many","channel":"news"}`)
		r.bus.release()
		if said := k.heard(); len(said) != maxAsking {
			t.Errorf("%d answers: %s", len(said), said)
		}
		if said := k.say(`{"history":"news"}`); len(said) != 1 {
			t.Errorf("then %s", said)
		}
		k.leave()
	})
}

func TestRate(t *testing.T) {
	o := everybody()
	o.Commands = 10
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		count := func(n int) (pongs, errs int) {
			r.turn(func() {
				for range n {
					r.c.message(k.s, frame.Text, []byte(`{"ping":true}`))
				}
			})
			for _, said := range k.heard() {
				if strings.Contains(said, "pong") {
					pongs++
				} else if strings.Contains(said, `"code":"rate"`) {
					errs++
				}
			}
			return pongs, errs
		}
		if pongs, errs := count(110); pongs != 100 || errs != 10 {
			t.Errorf("of 110 at once %d were done and %d refused, want 100", pongs, errs)
		}
		time.Sleep(3 * time.Second)
		if pongs, errs := count(25); pongs != 20 || errs != 5 { // 30, less the 10 that were too many
			t.Errorf("of 25 after 3 s %d were done and %d refused, want 20", pongs, errs)
		}
		k.closedWith(0)
		count(100)
		k.closedWith(frame.PolicyViolation)
		k.leave()

		// What takes more counts more.
		k = r.connect("")
		for range 2 * o.Commands {
			k.say(`{"history":"a"}`)
		}
		k.expect(`{"ping":true}`, `{"error":"too many commands: at most 10 a second","code":"rate"}`)
		k.closedWith(0)
		k.leave()

		// Who is slow enough is never refused.
		k = r.connect("")
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			k.expect(`{"ping":true}`, `{"pong":true}`)
		}
		k.leave()
	})
}

func TestBrokenJSONFlood(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		k := r.connect("")
		k.expect(`{"subscribe"`, `{"error":"not JSON: send an object like {\"subscribe\":\"news\"}","code":"bad_request"}`)
		k.closedWith(0)
		n := 1
		for ; k.code == 0 && n < 1000; n++ {
			k.say(`nonsense`)
		}
		k.closedWith(frame.PolicyViolation)
		if n < 20 || n > 200 {
			t.Errorf("closed after %d broken messages", n)
		}
		k.leave()
	})
}

func TestExpiry(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		claims := func(user string, in time.Duration, may ...string) string {
			return tokenFor(t, map[string]any{"sub": user, "exp": time.Now().Add(in).Unix(), "subscribe": may})
		}
		// The leeway for clocks is half a minute, and belongs to the grant.
		early, late, renewed := r.connect(claims("e", time.Minute, "*")), r.connect(claims("l", time.Hour, "*")), r.connect(claims("r", time.Minute, "*"))
		gone := r.connect(claims("g", time.Minute, "*"))
		gone.leave()
		renewed.say(`{"subscribe":"a"}`)
		renewed.say(`{"subscribe":"b"}`)
		renewed.say(`{"subscribe":"c"}`)
		if said := renewed.say(`{"token":"` + claims("other", time.Hour) + `"}`); len(said) != 1 || !strings.Contains(said[0], `"forbidden"`) {
			t.Errorf("another user's token: %s", said)
		}
		said := renewed.say(`{"token":"` + claims("r", 2*time.Hour, "b") + `","id":1}`)
		slices.Sort(said)
		want := []string{fmt.Sprintf(`{"token":"ok","id":1,"expires":%d}`, time.Now().Add(2*time.Hour+30*time.Second).Unix()), `{"unsubscribed":"a"}`, `{"unsubscribed":"c"}`}
		if !slices.Equal(said, want) {
			t.Errorf("renewed: %s, want %s", said, want)
		}
		time.Sleep(89 * time.Second)
		early.closedWith(0)
		time.Sleep(time.Second)
		early.closedWith(frame.Unauthorized)
		late.closedWith(0)
		time.Sleep(time.Hour)
		late.closedWith(frame.Unauthorized)
		renewed.closedWith(0)
		gone.closedWith(0)
		early.leave()
		late.leave()
		time.Sleep(time.Hour)
		renewed.closedWith(frame.Unauthorized)
		renewed.leave()
		if n := r.c.expiry.heap.Len(); n != 0 {
			t.Errorf("%d sessions are remembered", n)
		}
	})
}

// A command looks at the clock itself.
func TestExpiredCommand(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		k := r.join(&auth.Grant{})
		k.s.grant = &auth.Grant{Expires: time.Now()}
		k.expect(`{"ping":true}`)
		k.closedWith(frame.Unauthorized)
		k.leave()
	})
}

// A token that comes later makes a named client of one without a name.
func TestTokenLater(t *testing.T) {
	o := tokens()
	o.Auth.Subscribe = []string{"public"}
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		k.expect(`{"subscribe":"private"}`, `{"error":"you may not subscribe to this channel","code":"forbidden","channel":"private"}`)
		k.expect(`{"token":"`+tokenFor(t, map[string]any{"sub": "ann", "subscribe": []string{"private"}})+`"}`, `{"token":"ok","expires":null}`)
		if said := k.say(`{"subscribe":"private"}`); len(said) != 1 || !strings.Contains(said[0], `"subscribed"`) {
			t.Errorf("then %s", said)
		}
		k.leave()
	})
}

// While the bus thinks, the client may change its mind.
func TestSubscribeLate(t *testing.T) {
	o := everybody()
	o.Presence = false
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		r.publish("a", "1")
		r.bus.hold = true
		k.expect(`{"subscribe":"a"}`)
		k.expect(`{"subscribe":"b"}`)
		k.expect(`{"unsubscribe":"b"}`, `{"unsubscribed":"b"}`)
		k.expect(`{"subscribe":"c"}`)
		k.expect(`{"subscribe":"c","id":2,"epoch":"x","offset":1}`)
		if len(k.s.others().pending) != 2 {
			t.Errorf("%d subscriptions wait for an answer, want 2", len(k.s.others().pending))
		}
		r.publish("a", "2")
		r.bus.release()
		said := k.heard()
		want := []string{`{"subscribed":"a","epoch":"` + r.epoch() + `","offset":2}`, `{"subscribed":"c","id":2,"epoch":"` + r.epoch() + `","offset":0,"recovered":false}`}
		if slices.Sort(said); !slices.Equal(said, want) {
			t.Errorf("got %s, want %s", said, want)
		}
		if len(k.s.others().pending) > 0 {
			t.Error("something still waits")
		}
		r.publish("a", "3")
		r.publish("b", "1")
		k.expect("", `{"message":"a","offset":3,"data":3}`)

		// Gone before the answer: nobody is told.
		r.bus.hold = true
		k.expect(`{"subscribe":"d"}`)
		k.leave()
		r.bus.release()
		k.expect("")
	})
}

func TestSubscribeFails(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		k := r.connect("")
		r.bus.fail = errors.New("no")
		for range 2 {
			k.expect(`{"subscribe":"a","id":1}`, `{"error":"this channel cannot be subscribed to now: try again","code":"unavailable","id":1,"channel":"a"}`)
		}
		k.expect(`{"history":"a"}`, `{"error":"the history cannot be read now","code":"unavailable","channel":"a"}`)
		r.bus.hold = true
		k.expect(`{"subscribe":"a","id":2}`)
		r.bus.release()
		k.expect("", `{"error":"this channel cannot be subscribed to now: try again","code":"unavailable","id":2,"channel":"a"}`)
		if k.s.count() != 0 || len(k.s.others().pending) > 0 {
			t.Error("a failed subscription is remembered")
		}
		r.bus.fail = nil
		k.expect(`{"subscribe":"a"}`, `{"subscribed":"a","epoch":"EPOCH","offset":0}`)
		k.leave()
	})
}

func TestNotes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		k := r.connect("")
		k.say(`{"subscribe":"a"}`)
		r.bus.listener.Deliver(bus.Message{Channel: "a", ID: "i1", Data: []byte(`1`)})
		k.expect("", `{"message":"a","id":"i1","data":1}`)
		r.bus.listener.Placed("a", "i1", 7)
		k.expect("", `{"placed":"a","id":"i1","offset":7}`)
		r.bus.listener.Reset("a")
		k.expect("", `{"reset":"a"}`)
		k.leave()
	})
	if got, want := string(leaving(2345678*time.Microsecond)), `{"reconnect":2.346}`; got != want {
		t.Errorf("leaving says %s, want %s", got, want)
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, everybody())
		k := r.connect("")
		k.say(`{"subscribe":"a"}`)
		if err := r.c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{`{"subscribe":"b"}`, `{"publish":"b","data":1}`, `{"history":"b"}`} {
			if said := k.say(command); len(said) != 1 || !strings.Contains(said[0], `"unavailable"`) {
				t.Errorf("%s: %s", command, said)
			}
		}
		k.leave()
		r.close()
	})
}

// Quoted strings are JSON, whatever is in them.
func TestQuoted(t *testing.T) {
	for _, s := range []string{"", "news", `a"b\c`, "\x00\x1f\n\r\t\x7f", "日本\u2028", "a\xffb\xc3", string([]byte{0xed, 0xa0, 0x80})} {
		var back string
		b := appendQuoted(nil, s)
		if err := json.Unmarshal(b, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && len(back) < len(s) {
			t.Errorf("%q is quoted as %s: %v", s, b, err)
		}
		want, _ := json.Marshal(s)
		var wanted string
		if json.Unmarshal(want, &wanted); back != wanted {
			t.Errorf("%q comes back as %q, want %q", s, back, wanted)
		}
	}
}

func TestSessionSize(t *testing.T) {
	if size := unsafe.Sizeof(session{}); size > 80 {
		t.Errorf("a session has %d bytes, and is to fit into 80", size)
	}
	if size := unsafe.Sizeof(session{}) + unsafe.Sizeof(hub.Subscription{}); size > 160 {
		t.Errorf("with a subscription it has %d bytes, the target is 160", size)
	}
	t.Logf("session %d bytes, hub.Subscription %d", unsafe.Sizeof(session{}), unsafe.Sizeof(hub.Subscription{}))
}
