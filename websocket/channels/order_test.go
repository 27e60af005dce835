package channels

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"millrace/store/bus"
	"millrace/websocket/auth"
	"millrace/websocket/frame"
)

// sayAll says commands in one turn, as they come when a client pipelines them.
func (k *client) sayAll(commands ...string) []string {
	k.r.turn(func() {
		for _, text := range commands {
			k.r.c.message(k.s, frame.Text, []byte(text))
		}
	})
	return k.heard()
}

// Who subscribes and publishes in one breath gets what it has published, however
// long the bus takes for the subscription.
func TestPublishBehindSubscribe(t *testing.T) {
	o := everybody()
	o.Presence = false
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		r.bus.hold = true
		got := k.sayAll(`{"subscribe":"a"}`, `{"publish":"a","data":1}`, `{"publish":"b","data":2}`, `{"publish":"a","data":3}`)
		if len(got) != 0 {
			t.Errorf("before the subscription: %s", got)
		}
		r.bus.release()
		var subscribed, messages, published string
		for _, said := range k.heard() {
			switch {
			case strings.HasPrefix(said, `{"message"`):
				messages += said
			case strings.HasPrefix(said, `{"published"`):
				published += said
			default:
				subscribed += said + messages
			}
		}
		if want := `{"subscribed":"a","epoch":"` + r.epoch() + `","offset":0}`; subscribed != want {
			t.Errorf("first %s, want %s", subscribed, want)
		}
		if want := `{"message":"a","offset":1,"data":1}{"message":"a","offset":2,"data":3}`; messages != want {
			t.Errorf("then %s, want %s", messages, want)
		}
		if want := `{"published":"a","offset":1}{"published":"b","offset":1}{"published":"a","offset":2}`; published != want {
			t.Errorf("answers %s, want %s", published, want)
		}
		if p := r.c.publisher; len(p.lines) != 0 || p.bytes != 0 || p.working != 0 {
			t.Errorf("%d lines, %d bytes and %d workers are left", len(p.lines), p.bytes, p.working)
		}

		// One that fails, is given up, or whose client goes holds nothing up.
		for _, end := range []string{"fail", "unsubscribe", "replace", "gone"} {
			k := r.connect("")
			r.bus.hold = true
			k.sayAll(`{"subscribe":"c"}`, `{"publish":"c","data":4}`)
			top := r.top("c")
			switch end {
			case "fail":
				r.bus.fail = bus.ErrClosed
			case "unsubscribe":
				k.say(`{"unsubscribe":"c"}`)
			case "replace":
				k.sayAll(`{"subscribe":"c"}`, `{"publish":"c","data":5}`)
				top++
			case "gone":
				k.leave()
			}
			r.bus.release()
			synctest.Wait()
			r.bus.fail = nil
			if now := r.top("c"); now != top+1 {
				t.Errorf("%s: %d publications came behind %d", end, now, top)
			}
			if end != "gone" {
				k.leave()
			}
		}
		k.leave()
	})
}

// top is the last offset of a channel.
func (r *rig) top(channel string) (top uint64) {
	r.bus.Memory.History(channel, nil, 1, func(h bus.History, _ error) { top = h.Top.Offset })
	return top
}

// A new token that does not allow to see who is there ends being told of it.
func TestRenewedWithoutPresence(t *testing.T) {
	bubble(t, tokens(), func(t *testing.T, r *rig) {
		claims := func(user string, presence ...string) string {
			return tokenFor(t, map[string]any{"sub": user, "subscribe": []string{"*"}, "presence": presence})
		}
		k, other := r.connect(claims("ann", "*")), r.connect(claims("bob"))
		k.say(`{"subscribe":"a","joins":true}`)
		k.say(`{"subscribe":"b","joins":true}`)
		k.expect(`{"token":"`+claims("ann", "b")+`"}`, `{"token":"ok","expires":null}`)
		other.sayAll(`{"subscribe":"a"}`, `{"subscribe":"b"}`)
		if got := k.heard(); len(got) != 1 || !strings.HasPrefix(got[0], `{"join":"b"`) {
			t.Errorf("with a token for b it hears %s", got)
		}
		r.publish("a", "1")
		k.expect("", `{"message":"a","offset":1,"data":1}`)
		k.leave()
		other.leave()
	})
}

// On a bus of several machines messages have their IDs besides their offsets:
// another machine may deliver them without.
func TestIDBesideOffset(t *testing.T) {
	bubble(t, Options{Bus: "nats://only.as.a.name"}, func(t *testing.T, r *rig) {
		publish := func(id string) {
			if _, err := r.c.hub.Publish(t.Context(), bus.Message{Channel: "a", ID: id, Data: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
		k, c := r.connect(""), r.listen("channel=a", "", nil)
		k.say(`{"subscribe":"a"}`)
		publish("i1")
		k.expect("", `{"message":"a","offset":1,"id":"i1","data":1}`)
		last := c.expect(`message {"message":"a","offset":1,"id":"i1","data":1}`)
		c.leave()
		k.say(`{"unsubscribe":"a"}`)
		publish("i2")
		k.expect(`{"subscribe":"a","epoch":"`+r.epoch()+`","offset":1}`,
			`{"subscribed":"a","epoch":"EPOCH","offset":2,"recovered":true}`, `{"message":"a","offset":2,"id":"i2","data":1}`)
		c = r.listen("channel=a", last, nil)
		c.expect(`message {"message":"a","offset":2,"id":"i2","data":1}`)
		c.leave()
		if got := k.say(`{"history":"a","epoch":"` + r.epoch() + `","offset":1}`); len(got) != 1 || !strings.Contains(got[0], `"messages":[{"offset":2,"id":"i2","data":1,`) {
			t.Errorf("history: %s", got)
		}
		k.leave()
	})
}

// While the other machines cannot be reached, clients are told so.
func TestSubscribedDown(t *testing.T) {
	o := everybody()
	o.Presence = false
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		r.bus.listener.State(bus.ErrDown)
		r.bus.fail = bus.ErrDown
		k.expect(`{"subscribe":"a"}`, `{"subscribed":"a","epoch":"","offset":0,"down":true}`)
		k.expect(`{"subscribe":"a","epoch":"E","offset":7}`, `{"subscribed":"a","epoch":"E","offset":7,"recovered":false,"down":true}`)
		r.bus.listener.Deliver(bus.Message{Channel: "a", ID: "i", Data: []byte("1")})
		r.bus.listener.Deliver(bus.Message{Channel: "a", Offset: 9, Data: []byte("2")})
		r.bus.fail = nil
		r.bus.listener.State(nil)
		k.expect("", `{"message":"a","id":"i","data":1}`, `{"reset":"a"}`)
		k.leave()
	})
	c := &Channels{}
	for id, want := range map[string]string{"": `{"published":"a","message_id":"i"}`, "7": `{"published":"a","id":7,"message_id":"i"}`} {
		if got := string(c.published(bus.Message{ID: "i"}, nil, "a", json.RawMessage(id))); got != want {
			t.Errorf("without an offset: %s, want %s", got, want)
		}
	}
}

// More than a queue of what was missed waits for clients only while there is
// memory for it.
func TestMissedHasRoom(t *testing.T) {
	o := Options{}
	bubble(t, o, func(t *testing.T, r *rig) {
		for range 5 {
			r.publish("large", quoted20k())
			r.publish("small", `1`)
		}
		r.c.meters.QueuedBytes.Set(mostMissed) // of others
		k := r.connect("")
		from := func(channel string) string {
			return fmt.Sprintf(`{"subscribe":%q,"epoch":%q,"offset":0}`, channel, r.epoch())
		}
		if got := k.say(from("small")); len(got) != 6 {
			t.Errorf("small: %s", got)
		}
		for range 2 { // the second one is answered before Subscribe returns
			k.expect(from("large"), `{"error":"too much waits for clients that have missed something: try again","code":"unavailable","channel":"large"}`)
			r.publish("large", `1`)
			k.expect("")
			other := r.connect("")
			other.say(`{"subscribe":"large"}`)
		}
		if n := k.s.count(); n != 1 || len(k.s.others().pending) > 0 {
			t.Errorf("%d subscriptions", n)
		}
		r.c.meters.QueuedBytes.Set(0)
		if got := k.say(from("large")); len(got) != 8 {
			t.Errorf("then %d", len(got))
		}
		k.leave()
	})
}

// A reset must reach also a client that reads slowly.
func TestResetIsNotDropped(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, r *rig) {
		k := &answers{client: client{r: r}}
		k.s = &session{grant: &auth.Grant{}, slot: noSlot}
		k.s.grant = grantOf(t, r.c)
		r.turn(func() { r.c.open(k.s, k) })
		r.turn(func() { r.c.message(k.s, frame.Text, []byte(`{"subscribe":"a"}`)) })
		r.publish("a", "1")
		r.bus.listener.Reset("a")
		synctest.Wait()
		if want := "subscribed reset"; k.kinds() != want {
			t.Errorf("not dropped for a slow client: %s, want %s", k.kinds(), want)
		}
		r.turn(func() { r.c.closed(k.s) })
	})
}

// answers is a client that gets nothing but what is never dropped.
type answers struct{ client }

func (k *answers) Deliver(*frame.Prepared) {}

func (k *answers) kinds() string {
	var all []string
	for _, text := range k.heard() {
		all = append(all, strings.Split(text, `"`)[1])
	}
	return strings.Join(all, " ")
}

// Every command that has an id is answered, also one that another takes back
// before it is done.
func TestReplaced(t *testing.T) {
	o := everybody()
	o.Presence = false
	bubble(t, o, func(t *testing.T, r *rig) {
		k := r.connect("")
		r.bus.hold = true
		k.expect(`{"subscribe":"a","id":1}`)
		const gone = `{"error":"another command for this channel came before this one was done","code":"replaced","id":%d,"channel":"a"}`
		k.expect(`{"subscribe":"a","id":2}`, fmt.Sprintf(gone, 1))
		k.expect(`{"unsubscribe":"a","id":3}`, fmt.Sprintf(gone, 2), `{"unsubscribed":"a","id":3}`)
		k.expect(`{"subscribe":"a"}`)
		k.expect(`{"unsubscribe":"a"}`, `{"unsubscribed":"a"}`)
		k.expect(`{"subscribe":"a","id":4}`)
		k.leave()
		r.bus.release()
		k.expect("")
	})
}
