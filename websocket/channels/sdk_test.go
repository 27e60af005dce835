package channels

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/store/bus"
	"millrace/websocket/centrifuge"
	"millrace/websocket/frame"
)

func TestSDKProtocol(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		k := r.sdk(nil)
		k.expect(`{"id":1,"connect":{"name":"js"}}`, `{"id":1,"connect":{"client":"ME"}}`)
		k.expect(`{"id":2,"subscribe":{"channel":"news"}}`, `{"id":2,"subscribe":{"recoverable":true,"epoch":"EPOCH","positioned":true}}`)
		r.publish("news", `{"a":"<b>"}`)
		k.expect("", `{"push":{"channel":"news","pub":{"data":{"a":"<b>"},"offset":1}}}`)
		k.expect(`{"id":3,"publish":{"channel":"news","data":{"x": 1}}}`,
			`{"push":{"channel":"news","pub":{"data":{"x":1},"info":{"user":"","client":"ME"},"offset":2}}}`, `{"id":3,"publish":{}}`)
		k.expect(`{"id":4,"presence":{"channel":"news"}}`, `{"id":4,"presence":{"presence":{"ME":{"user":"","client":"ME"}}}}`)
		k.expect(`{"id":5,"presence_stats":{"channel":"news"}}`, `{"id":5,"presence_stats":{"num_clients":1,"num_users":1}}`)
		k.expect(`{"id":6,"presence_stats":{"channel":"empty"}}`, `{"id":6,"presence_stats":{"num_clients":0,"num_users":0}}`)
		k.expect(`{"id":7,"ping":{}}`, `{"id":7,"ping":{}}`)
		k.expect(`{}`) // a pong
		k.expect(`{"id":8,"rpc":{"method":"x"}}`, `{"id":8,"error":{"code":108,"message":"not available: nothing here answers calls"}}`)
		k.expect(`{"id":9,"unsubscribe":{"channel":"news"}}`, `{"id":9,"unsubscribe":{}}`)
		k.expect(`{"id":10,"unsubscribe":{"channel":"news"}}`, `{"id":10,"unsubscribe":{}}`)
		r.publish("news", `3`)
		k.expect("")
		// Several commands in a frame, some with the same id.
		k.expect("{\"id\":11,\"subscribe\":{\"channel\":\"a\"}}\n{\"id\":11,\"subscribe\":{\"channel\":\"b\"}}\n",
			`{"id":11,"subscribe":{"recoverable":true,"epoch":"EPOCH","positioned":true}}`, `{"id":11,"subscribe":{"recoverable":true,"epoch":"EPOCH","positioned":true}}`)
		k.closedWith(0)
		k.leave()
		r.clean()
	})
}

// TestSDKEnds are the things that no client of the protocol does: the connection ends
// with the documented code, and others do not notice.
func TestSDKEnds(t *testing.T) {
	connect := `{"id":1,"connect":{}}`
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		other := r.dial("")
		other.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		for text, code := range map[string]frame.Code{
			``:                               3501,
			"\n":                             3501,
			`[]`:                             3501,
			`nonsense`:                       3501,
			`{"subscribe":"news"}`:           3501, // our own protocol
			`{"id":-1,"connect":{}}`:         3501,
			`{"id":4294967296,"connect":{}}`: 3501,
			`{"id":1}`:                       3501, // before connect
			`{}`:                             3501,
			`{"connect":{}}`:                 3501,
			`{"id":1,"subscribe":{"channel":"news"}}`:   3501,
			connect + "\n" + connect:                    3501,
			connect + "\n\n" + `{"id":2,"ping":{}}`:     3501,
			connect + "\n" + `{"id":2}`:                 3501,
			connect + "\n" + `{"id":2,"subscribe":{}}`:  3501,
			connect + "\n" + `{"ping":{},"id":"two"}`:   3501,
			connect + "\n" + `{"send":{"data":1}}`:      3508,
			`{"id":1,"connect":{"token":"x"}}`:          3500,
			connect + "\n" + `{"id":2,"refresh":{}}`:    3500,
			connect + "\n" + strings.Repeat("[", 1<<20): 3501,
		} {
			k := r.sdk(nil)
			k.say(text)
			if k.code != code {
				t.Errorf("%.80q ends with %d %q, want %d", text, k.code, k.reason, code)
			}
			k.leave()
		}
		k := r.sdk(nil)
		r.turn(func() { r.c.frame(k.k, frame.Binary, []byte("{\"id\":1,\"connect\":{\"name\":\"\xff\"}}")) })
		k.closedWith(3501)
		k.leave()
		r.publish("news", "1")
		other.expect("", `{"push":{"channel":"news","pub":{"data":1,"offset":1}}}`)
		other.leave()
		r.clean()
	})
}

func TestSDKErrors(t *testing.T) {
	o := tokens()
	o.PerClient, o.MaxPublish = 2, 100
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.dial(tokenFor(t, map[string]any{"sub": "ann", "subscribe": []string{"news", "a", "b"}, "publish": []string{"out"}, "presence": []string{"news"}}))
		sub := func(claims map[string]any) string {
			return `{"id":2,"subscribe":{"channel":"own","token":"` + tokenFor(t, claims) + `"}}`
		}
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		for command, code := range map[string]uint32{
			`{"id":2,"subscribe":{"channel":"out"}}`:                                     103,
			`{"id":2,"subscribe":{"channel":"news"}}`:                                    105,
			`{"id":2,"subscribe":{"channel":"` + strings.Repeat("x", 256) + `"}}`:        107,
			`{"id":2,"subscribe":{"channel":"a\u0000"}}`:                                 107,
			`{"id":2,"history":{"channel":"out"}}`:                                       103,
			`{"id":2,"publish":{"channel":"news","data":1}}`:                             103,
			`{"id":2,"publish":{"channel":"out"}}`:                                       107,
			`{"id":2,"publish":{"channel":"out","data":"` + quoted(100) + `"}}`:          107,
			`{"id":2,"presence":{"channel":"out"}}`:                                      103,
			`{"id":2,"presence_stats":{"channel":"out"}}`:                                103,
			`{"id":2,"sub_refresh":{"channel":"news","token":"x"}}`:                      103,
			`{"id":2,"subscribe":{"channel":"own","token":"x"}}`:                         103,
			sub(map[string]any{"sub": "ann", "channel": "other"}):                        103,
			sub(map[string]any{"sub": "bob", "channel": "own"}):                          103,
			sub(map[string]any{"sub": "ann"}):                                            103,
			sub(map[string]any{"sub": "ann", "channel": "own", "exp": in(-time.Hour)}):   109,
			sub(map[string]any{"sub": "ann", "channel": "own", "info": quoted(8 << 10)}): 103,
		} {
			if e := k.errorTo(command); e.Code != code || e.Temporary {
				t.Errorf("%.100s: %+v, want %d", command, e, code)
			}
		}
		k.say(`{"id":3,"subscribe":{"channel":"a"}}`)
		if e := k.errorTo(`{"id":4,"subscribe":{"channel":"b"}}`); e.Code != 106 {
			t.Errorf("one subscription too many: %+v", e)
		}
		k.closedWith(0)
		k.leave()
		r.clean()
	})
}

func quoted(n int) string { return strings.Repeat("x", n) }

func TestSDKTokens(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		k := r.sdk(nil)
		if e := k.errorTo(`{"id":1,"connect":{}}`); e.Code != 101 {
			t.Errorf("without a token: %+v", e)
		}
		k.say(`{"id":2,"ping":{}}`)
		k.closedWith(3501) // nothing is obeyed behind an error of connect
		k.leave()

		k = r.sdk(nil)
		if e := k.errorTo(`{"id":1,"connect":{"token":"` + tokenFor(t, map[string]any{"exp": in(-time.Hour)}) + `"}}`); e.Code != 109 {
			t.Errorf("with an expired token: %+v", e)
		}
		k.leave()

		good := func(user string, d time.Duration) string {
			return tokenFor(t, map[string]any{"sub": user, "exp": in(d), "subscribe": []string{"news"}})
		}
		k = r.sdk(nil)
		k.expect(`{"id":1,"connect":{"token":"`+good("ann", time.Minute)+`"}}`, `{"id":1,"connect":{"client":"ME","expires":true,"ttl":60}}`)
		k.expect(`{"id":2,"refresh":{"token":"`+good("ann", time.Hour)+`"}}`, `{"id":2,"refresh":{"client":"ME","expires":true,"ttl":3600}}`)
		time.Sleep(time.Hour)
		if e := k.errorTo(`{"id":3,"refresh":{"token":"` + good("ann", -time.Hour) + `"}}`); e.Code != 109 {
			t.Errorf("refreshed with an expired token: %+v", e)
		}
		time.Sleep(30 * time.Second) // the leeway for clocks
		k.closedWith(3005)
		k.leave()

		k = r.dial(good("ann", time.Hour))
		k.say(`{"id":2,"refresh":{"token":"` + good("bob", time.Hour) + `"}}`)
		k.closedWith(3500)
		k.leave()

		// A token that ends when its grant does not.
		k = r.sdk(nil)
		k.expect(`{"id":1,"connect":{"token":"`+tokenFor(t, map[string]any{"exp": in(time.Minute), "expire_at": 0})+`"}}`, `{"id":1,"connect":{"client":"ME"}}`)
		time.Sleep(time.Hour)
		k.closedWith(0)
		k.leave()

		// What a new token does not allow ends.
		k = r.dial(good("ann", time.Hour))
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		k.expect(`{"id":3,"refresh":{"token":"`+tokenFor(t, map[string]any{"sub": "ann"})+`"}}`,
			`{"id":3,"refresh":{"client":"ME"}}`, `{"push":{"channel":"news","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}`)
		k.leave()
		r.clean()
	})
}

func TestSDKSubscriptionTokens(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		token := func(d time.Duration) string {
			return tokenFor(t, map[string]any{"sub": "ann", "channel": "own", "info": map[string]int{"age": 7}, "exp": in(d)})
		}
		presence := map[string]any{"sub": "ann", "presence": []string{"own"}, "publish": []string{"own"}, "info": "I"}
		k := r.dial(tokenFor(t, presence))
		k.expect(`{"id":2,"subscribe":{"channel":"own","token":"`+token(time.Minute)+`"}}`,
			`{"id":2,"subscribe":{"expires":true,"ttl":60,"recoverable":true,"epoch":"EPOCH","positioned":true}}`)
		k.expect(`{"id":3,"presence":{"channel":"own"}}`,
			`{"id":3,"presence":{"presence":{"ME":{"user":"ann","client":"ME","conn_info":"I","chan_info":{"age":7}}}}}`)
		k.expect(`{"id":4,"publish":{"channel":"own","data":1}}`,
			`{"push":{"channel":"own","pub":{"data":1,"info":{"user":"ann","client":"ME","conn_info":"I","chan_info":{"age":7}},"offset":1}}}`, `{"id":4,"publish":{}}`)
		k.expect(`{"id":5,"sub_refresh":{"channel":"own","token":"`+token(2*time.Minute)+`"}}`, `{"id":5,"sub_refresh":{"expires":true,"ttl":120}}`)
		if e := k.errorTo(`{"id":6,"sub_refresh":{"channel":"own","token":"` + token(-time.Hour) + `"}}`); e.Code != 109 {
			t.Errorf("refreshed with an expired token: %+v", e)
		}
		// A new token of the connection does not end what a token of its own allows.
		k.expect(`{"id":7,"refresh":{"token":"`+tokenFor(t, presence)+`"}}`, `{"id":7,"refresh":{"client":"ME"}}`)
		time.Sleep(149 * time.Second)
		k.expect("")
		time.Sleep(time.Second)
		k.expect("", `{"push":{"channel":"own","unsubscribe":{"code":2501,"reason":"subscription expired"}}}`)
		r.publish("own", "2")
		k.expect("")
		k.expect(`{"id":8,"subscribe":{"channel":"own","recover":true,"epoch":"EPOCH","offset":1,"token":"`+token(time.Minute)+`"}}`,
			`{"id":8,"subscribe":{"expires":true,"ttl":60,"recoverable":true,"epoch":"EPOCH","publications":[{"data":2,"offset":2}],"recovered":true,"offset":1,"positioned":true,"was_recovering":true}}`)
		k.leave()
		r.clean()
	})
}

// TestSDKSubscriptionFails: of a subscription that the bus refuses nothing is left, and
// nothing ends later.
func TestSDKSubscriptionFails(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		k := r.dial(tokenFor(t, map[string]any{"sub": "ann"}))
		r.bus.fail = errors.New("the bus fails")
		if e := k.errorTo(`{"id":2,"subscribe":{"channel":"own","token":"` + tokenFor(t, map[string]any{"sub": "ann", "channel": "own", "exp": in(time.Minute)}) + `"}}`); e.Code != 100 || !e.Temporary {
			t.Errorf("the bus fails: %+v", e)
		}
		if k.k.extras != nil {
			t.Errorf("kept is %+v", k.k.extras)
		}
		time.Sleep(2 * time.Minute)
		k.expect("")
		r.bus.fail = nil
		k.leave()
		r.clean()
	})
}

func TestSDKStale(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		late, good := r.sdk(nil), r.dial("")
		time.Sleep(staleAfter)
		late.closedWith(3502)
		good.closedWith(0)
		late.leave()
		good.leave()
		r.clean()
	})
}

func TestSDKRate(t *testing.T) {
	o := Options{Commands: 1}
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.dial("")
		for range 9 {
			k.expect(`{"id":2,"ping":{}}`, `{"id":2,"ping":{}}`)
		}
		if e := k.errorTo(`{"id":3,"ping":{}}`); e.Code != 111 || !e.Temporary {
			t.Errorf("too often: %+v", e)
		}
		for range 20 {
			k.say(`{"id":3,"ping":{}}`)
		}
		k.closedWith(3013)
		k.leave()
	})
}

// TestSDKRecovery: who comes back gets what it has missed, or is told that it cannot.
func TestSDKRecovery(t *testing.T) {
	bubble(t, Options{History: History{Messages: 3}}, func(t *testing.T, r *rig) {
		for i := range 5 {
			r.publish("news", fmt.Sprint(i+1))
		}
		for place, want := range map[string]string{
			`"epoch":"EPOCH","offset":5`:  `"recoverable":true,"epoch":"EPOCH","recovered":true,"offset":5,"positioned":true,"was_recovering":true`,
			`"epoch":"EPOCH","offset":3`:  `"recoverable":true,"epoch":"EPOCH","publications":[{"data":4,"offset":4},{"data":5,"offset":5}],"recovered":true,"offset":3,"positioned":true,"was_recovering":true`,
			`"epoch":"EPOCH","offset":1`:  `"recoverable":true,"epoch":"EPOCH","offset":5,"positioned":true,"was_recovering":true`,
			`"epoch":"EPOCH","offset":9`:  `"recoverable":true,"epoch":"EPOCH","offset":5,"positioned":true,"was_recovering":true`,
			`"epoch":"before","offset":3`: `"recoverable":true,"epoch":"EPOCH","offset":5,"positioned":true,"was_recovering":true`,
			`"offset":5`:                  `"recoverable":true,"epoch":"EPOCH","offset":5,"positioned":true,"was_recovering":true`,
		} {
			k := r.dial("")
			k.expect(`{"id":2,"subscribe":{"channel":"news","recover":true,`+place+`}}`, `{"id":2,"subscribe":{`+want+`}}`)
			k.leave()
		}
		r.clean()
	})
	bubble(t, Options{History: History{Off: true}}, func(t *testing.T, r *rig) {
		k := r.dial("")
		k.expect(`{"id":2,"subscribe":{"channel":"news"}}`, `{"id":2,"subscribe":{"epoch":"EPOCH","positioned":true}}`)
		if e := k.errorTo(`{"id":3,"history":{"channel":"news"}}`); e.Code != 108 {
			t.Errorf("without a history: %+v", e)
		}
		k.leave()
	})
}

// TestSDKReset: after a reset nothing comes until the client has subscribed anew.
func TestSDKReset(t *testing.T) {
	missed := `{"push":{"channel":"news","unsubscribe":{"code":2500,"reason":"insufficient state"}}}`
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		k := r.dial(tokenFor(t, map[string]any{"subscribe": []string{"news"}}))
		given := r.dial(tokenFor(t, map[string]any{"channels": []string{"news"}}))
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		r.publish("news", "1")
		k.heard()
		r.bus.listener.Reset("news")
		r.publish("news", "2")
		k.expect("", missed)
		k.expect(`{"id":3,"subscribe":{"channel":"news","recover":true,"epoch":"EPOCH","offset":1}}`,
			`{"id":3,"subscribe":{"recoverable":true,"epoch":"EPOCH","publications":[{"data":2,"offset":2}],"recovered":true,"offset":1,"positioned":true,"was_recovering":true}}`)
		r.publish("news", "3")
		k.expect("", `{"push":{"channel":"news","pub":{"data":3,"offset":3}}}`)
		given.closedWith(3010) // the client cannot subscribe: it has to connect anew
		k.leave()
		given.leave()
		r.clean()
	})
}

// TestSDKDown: while the other machines cannot be reached, who goes on somewhere stands
// where it stood, and has its reset when they are back.
func TestSDKDown(t *testing.T) {
	bubble(t, Options{Bus: "nats://only.as.a.name"}, func(t *testing.T, r *rig) {
		r.bus.listener.State(bus.ErrDown)
		r.bus.fail = bus.ErrDown
		k := r.dial("")
		k.expect(`{"id":2,"subscribe":{"channel":"news","recover":true,"epoch":"E","offset":7}}`,
			`{"id":2,"subscribe":{"recoverable":true,"epoch":"E","recovered":true,"offset":7,"positioned":true,"was_recovering":true}}`)
		if e := k.errorTo(`{"id":3,"history":{"channel":"news","limit":1}}`); e.Code != 100 || !e.Temporary {
			t.Errorf("history while they are down: %+v", e)
		}
		r.bus.fail = nil
		r.bus.listener.State(nil)
		k.expect("", `{"push":{"channel":"news","unsubscribe":{"code":2500,"reason":"insufficient state"}}}`)
		k.leave()
	})
}

// TestSDKGiven: the server subscribes a client to what its token names, and nothing comes
// before the answer to connect.
func TestSDKGiven(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		r.publish("b", "1")
		k := r.sdk(nil)
		token := tokenFor(t, map[string]any{"sub": "ann", "channels": []string{"a", "b"}, "subs": map[string]any{"a": map[string]any{"data": map[string]int{"x": 1}}}})
		r.bus.hold = true
		k.expect(`{"id":1,"connect":{"token":"` + token + `","subs":{"b":{"recover":true,"epoch":"EPOCH","offset":0}}}}`)
		r.bus.release()
		synctest.Wait()
		k.expect("", `{"id":1,"connect":{"client":"ME","subs":{`+
			`"a":{"recoverable":true,"epoch":"EPOCH","positioned":true,"data":{"x":1}},`+
			`"b":{"recoverable":true,"epoch":"EPOCH","publications":[{"data":1,"offset":1}],"recovered":true,"positioned":true,"was_recovering":true}}}}`)
		r.publish("a", "2")
		k.expect("", `{"push":{"channel":"a","pub":{"data":2,"offset":1}}}`)
		if e := k.errorTo(`{"id":2,"subscribe":{"channel":"a"}}`); e.Code != 105 {
			t.Errorf("subscribed a second time: %+v", e)
		}
		k.expect(`{"id":3,"history":{"channel":"a","limit":-1}}`, `{"id":3,"history":{"publications":[{"data":2,"offset":1,"time":`+fmt.Sprint(time.Now().UnixMilli())+`}],"epoch":"EPOCH","offset":1}}`)
		k.leave()
		for _, bad := range []map[string]any{
			{"channels": "a"}, {"channels": []string{""}}, {"subs": []string{"a"}}, {"subs": map[string]any{"a": map[string]any{"info": quoted(8 << 10)}}},
		} {
			k := r.sdk(nil)
			k.say(`{"id":1,"connect":{"token":"` + tokenFor(t, bad) + `"}}`)
			k.closedWith(3500)
			k.leave()
		}
		var many []string
		for i := range 129 {
			many = append(many, fmt.Sprint("c", i))
		}
		k = r.sdk(nil)
		k.say(`{"id":1,"connect":{"token":"` + tokenFor(t, map[string]any{"channels": many}) + `"}}`)
		k.closedWith(3505)
		k.leave()
		r.clean()
	})
}

// TestSDKGivenInOrder: what is published between the beginning of a subscription and the
// answer to connect comes behind that answer.
func TestSDKGivenInOrder(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		k := r.sdk(nil)
		token := tokenFor(t, map[string]any{"channels": []string{"a", "b"}})
		r.turn(func() { r.c.frame(k.k, frame.Text, []byte(`{"id":1,"connect":{"token":"`+token+`"}}`)) })
		g := &greeting{k: k.k, most: 1 << 10, later: k.client.Later(), reply: centrifuge.Reply{ID: 7}}
		g.waiting.Store(1)
		k.heard()
		var held []string
		for _, p := range r.publications("1", "2") {
			if !g.hold(p) {
				t.Fatal("nothing is held back")
			}
			held = append(held, string(p.Frame(formSDK).Payload()))
		}
		r.turn(g.one)
		k.expect("", append([]string{`{"id":7}`}, held...)...)
		if g.hold(r.publications("3")[0]) {
			t.Error("it holds back when all is said")
		}
		// More than a queue holds is given up, and the client connects anew.
		g = &greeting{k: k.k, most: 1, later: k.client.Later()}
		g.waiting.Store(1)
		g.hold(r.publications("12")[0])
		r.turn(g.one)
		k.closedWith(3004)
		k.leave()
	})
}

func TestSDKJoins(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		ann, bob := r.dial(""), r.dial("")
		ann.say(`{"id":2,"subscribe":{"channel":"chat","join_leave":true}}`)
		bob.say(`{"id":2,"subscribe":{"channel":"chat"}}`)
		member := func(of *sdk) string { return `{"info":{"user":"","client":"` + of.k.name() + `"}}` }
		ann.expect("", `{"push":{"channel":"chat","join":`+member(bob)+`}}`)
		bob.say(`{"id":3,"unsubscribe":{"channel":"chat"}}`)
		ann.expect("", `{"push":{"channel":"chat","leave":`+member(bob)+`}}`)
		bob.expect("")
		ann.leave()
		bob.leave()
	})
}

// TestSDKJoinsRevoked: a new token that shows no presence ends joins and leaves, also in
// a subscription that has a token of its own.
func TestSDKJoinsRevoked(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		ann := r.dial(tokenFor(t, map[string]any{"sub": "ann", "presence": []string{"own"}}))
		ann.say(`{"id":2,"subscribe":{"channel":"own","join_leave":true,"token":"` + tokenFor(t, map[string]any{"sub": "ann", "channel": "own"}) + `"}}`)
		bob := r.dial(tokenFor(t, map[string]any{"sub": "bob", "subscribe": []string{"own"}}))
		bob.say(`{"id":2,"subscribe":{"channel":"own"}}`)
		if said := ann.heard(); len(said) != 1 || !strings.Contains(said[0], `"join"`) {
			t.Fatalf("heard %s", said)
		}
		ann.say(`{"id":3,"refresh":{"token":"` + tokenFor(t, map[string]any{"sub": "ann"}) + `"}}`)
		bob.say(`{"id":3,"unsubscribe":{"channel":"own"}}`)
		ann.expect("")
		r.publish("own", "1")
		ann.expect("", `{"push":{"channel":"own","pub":{"data":1,"offset":1}}}`)
		ann.leave()
		bob.leave()
		r.clean()
	})
}

// TestSDKHistory are the pages of a history.
func TestSDKHistory(t *testing.T) {
	bubble(t, Options{History: History{Messages: 4}}, func(t *testing.T, r *rig) {
		for i := range 6 {
			r.publish("news", fmt.Sprint(i+1))
		}
		k := r.dial("")
		for request, want := range map[string]string{
			`"limit":0`:                   ``,
			``:                            ``,
			`"limit":-1`:                  `3456`,
			`"limit":2`:                   `34`,
			`"limit":9`:                   `3456`,
			`"limit":2,"reverse":true`:    `65`,
			`"limit":-1,"reverse":true`:   `6543`,
			`"limit":2,"since":{SINCE2}`:  `34`,
			`"limit":2,"since":{SINCE4}`:  `56`,
			`"limit":-1,"since":{SINCE6}`: ``,
			`"limit":2,"since":{SINCE5},"reverse":true`:  `43`,
			`"limit":-1,"since":{SINCE7},"reverse":true`: `6543`,
			`"limit":-1,"since":{SINCE1}`:                `112`,
			`"limit":-1,"since":{SINCE9},"reverse":true`: `112`,
			`"limit":2,"since":{"offset":3,"epoch":"x"}`: `112`,
			`"limit":-1,"since":{"offset":4}`:            `56`, // in whatever order
		} {
			for i := range 10 {
				request = strings.ReplaceAll(request, fmt.Sprint("SINCE", i), fmt.Sprintf(`"offset":%d,"epoch":"%s"`, i, r.epoch()))
			}
			k.r.c.spend(&k.k.session, -askCost)
			command := `{"id":2,"history":{"channel":"news",` + request + `}}`
			command = strings.ReplaceAll(command, `,}`, `}`)
			if want == "112" {
				if e := k.errorTo(command); e.Code != 112 || e.Temporary {
					t.Errorf("%s: %+v", request, e)
				}
				continue
			}
			said := strings.Join(k.say(command), "")
			var got strings.Builder
			for _, part := range strings.Split(said, `{"data":`)[1:] {
				got.WriteByte(part[0])
			}
			if got.String() != want || !strings.HasSuffix(said, `"epoch":"`+r.epoch()+`","offset":6}}`) {
				t.Errorf("%s: %s of %s, want %s", request, got.String(), said, want)
			}
		}
		k.leave()
	})
}

// TestSDKLongAnswers: an answer is at most half a queue long.
func TestSDKLongAnswers(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		for range 4 {
			r.publish("news", quoted20k())
		}
		k := r.dial("")
		if said := k.say(`{"id":2,"history":{"channel":"news","limit":-1}}`); len(said) != 1 || len(said[0]) > 33<<10 || strings.Count(said[0], `"data"`) != 1 {
			t.Errorf("%d answers, the first of %d bytes", len(said), len(said[0]))
		}
		k.leave()
	})
}

// TestSDKAndOthers: clients of both protocols and event streams get the same.
func TestSDKAndOthers(t *testing.T) {
	bubble(t, everybody(), func(t *testing.T, r *rig) {
		k, own := r.dial(""), r.connect("")
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		own.say(`{"subscribe":"news"}`)
		k.say(`{"id":3,"publish":{"channel":"news","data":"by an SDK"}}`)
		own.expect("", `{"message":"news","offset":1,"data":"by an SDK"}`)
		k.heard()
		own.say(`{"publish":"news","data":"by our own"}`)
		k.expect("", `{"push":{"channel":"news","pub":{"data":"by our own","offset":2}}}`)
		k.leave()
		own.leave()
	})
}

// TestSDKTags: what the server API says of a publication besides.
func TestSDKTags(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		k := r.dial("")
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		if _, err := r.c.hub.Publish(t.Context(), bus.Message{Channel: "news", Data: []byte("1"), Tags: map[string]string{"a": "<b>"}}); err != nil {
			t.Fatal(err)
		}
		k.expect("", `{"push":{"channel":"news","pub":{"data":1,"offset":1,"tags":{"a":"<b>"}}}}`)
		k.leave()
	})
}

// TestSDKForeignData: what another program has put on the bus may be no JSON, and must
// not break anybody's frames.
func TestSDKForeignData(t *testing.T) {
	bubble(t, Options{Bus: "nats://only.as.a.name"}, func(t *testing.T, r *rig) {
		k := r.dial("")
		k.say(`{"id":2,"subscribe":{"channel":"news"}}`)
		r.publish("news", "plain \"text\"\n\xff")
		r.publish("news", "")
		k.expect("", `{"push":{"channel":"news","pub":{"data":"plain \"text\"\n`+"\ufffd"+`","offset":1}}}`, `{"push":{"channel":"news","pub":{"data":"","offset":2}}}`)
		for _, info := range []string{`{"open":`, "\"\xff\""} {
			m := bus.Message{Channel: "news", Data: []byte("3"), From: &bus.Member{Client: "x", Info: []byte(info), InChannel: []byte(info)}}
			if _, err := r.c.hub.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		k.expect("", `{"push":{"channel":"news","pub":{"data":3,"info":{"user":"","client":"x"},"offset":3}}}`, `{"push":{"channel":"news","pub":{"data":3,"info":{"user":"","client":"x"},"offset":4}}}`)
		k.leave()
	})
}

// TestSDKHandshakeGrant: what the handshake has found out counts for who brings no token.
func TestSDKHandshakeGrant(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		req := request(t, "GET", "/connection/websocket", "")
		if state, err := r.c.ConnectSDK(req, centrifuge.JSON, nil); err != nil || state.(*sdkClient).grant != nil {
			t.Errorf("without a token: %+v, %v", state, err)
		}
		req.Header.Set("Authorization", "Bearer x")
		if _, err := r.c.ConnectSDK(req, centrifuge.JSON, nil); err == nil {
			t.Error("a wrong token is none")
		}
		req.Header.Set("Authorization", "Bearer "+tokenFor(t, map[string]any{"sub": "ann", "subscribe": []string{"news"}}))
		state, err := r.c.ConnectSDK(req, centrifuge.JSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		k := r.sdk(state.(*sdkClient).grant)
		k.expect(`{"id":1,"connect":{}}`, `{"id":1,"connect":{"client":"ME"}}`)
		if k.k.grant.User != "ann" {
			t.Errorf("the user is %q", k.k.grant.User)
		}
		k.leave()
	})
}
