package centrifuge

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/centrifugal/protocol"
	"google.golang.org/protobuf/encoding/protojson"
)

// asTheirs is a command of ours as the module has it, by way of JSON, whose names both
// have from the same file.
func asTheirs(t *testing.T, c *Command) *protocol.Command {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatalf("%+v has no JSON: %v", c, err)
	}
	theirs := new(protocol.Command)
	if err := json.Unmarshal(text, theirs); err != nil {
		t.Fatalf("the module cannot read %s: %v", text, err)
	}
	return theirs
}

// decodeTheirs are the commands of a frame as the module reads them.
func decodeTheirs(kind protocol.Type, data []byte) (all []*protocol.Command, err error) {
	d := protocol.GetCommandDecoder(kind, data)
	for {
		c, err := d.Decode()
		if c != nil {
			all = append(all, c)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// seeds are frames with every command.
func seeds() []string {
	return []string{
		`{"id":1,"connect":{"token":"t","data":{"a":[1]},"subs":{"x":{"recover":true,"epoch":"e","offset":3}},"name":"js","version":"5","headers":{"a":"b"}}}`,
		`{"id":2,"subscribe":{"channel":"x","token":"t","recover":true,"epoch":"e","offset":18446744073709551615,"data":"d","positioned":true,"recoverable":true,"join_leave":true,"delta":"fossil"}}`,
		"{\"id\":3,\"unsubscribe\":{\"channel\":\"x\"}}\n{\"id\":4,\"publish\":{\"channel\":\"x\",\"data\":null}}\n",
		`{"id":5,"presence":{"channel":"x"}}` + "\n" + `{"id":6,"presence_stats":{"channel":"x"}}`,
		`{"id":7,"history":{"channel":"x","limit":-1,"since":{"offset":5,"epoch":"e"},"reverse":true}}`,
		`{"id":8,"ping":{}}` + "\n" + `{"send":{"data":1}}` + "\n" + `{"id":9,"rpc":{"data":2,"method":"m"}}`,
		`{"id":10,"refresh":{"token":"t"}}` + "\n" + `{"id":11,"sub_refresh":{"channel":"x","token":"t"}}` + "\n{}",
	}
}

// encodeTheirs are frames in protobuf of frames in JSON.
func encodeTheirs(t testing.TB, text string) []byte {
	t.Helper()
	all, err := decodeTheirs(protocol.TypeJSON, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e := protocol.NewProtobufDataEncoder()
	for _, c := range all {
		b, err := c.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return e.Finish()
}

// check compares our commands with the module's, if both can read them.
func check(t *testing.T, form Form, kind protocol.Type, data []byte) {
	t.Helper()
	var ours []*Command
	err := form.Commands(data, func(c *Command) bool {
		ours = append(ours, c)
		return true
	})
	if err != nil {
		return // the module is less strict here and there
	}
	theirs, err := decodeTheirs(kind, data)
	if err != nil || len(theirs) != len(ours) {
		t.Fatalf("%q has %d commands for us, %d and %v for the module", data, len(ours), len(theirs), err)
	}
	for i := range ours {
		if form == Protobuf && !texts8(ours[i]) {
			continue // JSON cannot carry it
		}
		if want, got := theirs[i], asTheirs(t, ours[i]); !same(t, got, want) {
			t.Errorf("%q: command %d is\n%v for us, and\n%v for the module", data, i, got, want)
		}
	}
}

// texts8 reports whether all that a command holds can be written in JSON.
func texts8(c *Command) bool {
	ok := true
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				look(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				look(v.Field(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				look(key)
				look(v.MapIndex(key))
			}
		case reflect.String:
			ok = ok && utf8.ValidString(v.String())
		case reflect.Slice:
			ok = ok && (v.Len() == 0 || json.Valid(v.Bytes()) && utf8.Valid(v.Bytes()))
		}
	}
	look(reflect.ValueOf(c))
	return ok
}

// same compares two commands by their JSON: data that is not there and data of no bytes
// are the same.
func same(t *testing.T, a, b *protocol.Command) bool {
	t.Helper()
	text := func(c *protocol.Command) string {
		b, err := protojson.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		b, _ = json.Marshal(v)
		return string(b)
	}
	return text(a) == text(b)
}

func TestCommands(t *testing.T) {
	for _, text := range seeds() {
		check(t, JSON, protocol.TypeJSON, []byte(text))
		check(t, Protobuf, protocol.TypeProtobuf, encodeTheirs(t, text))
		for _, form := range []Form{JSON, Protobuf} {
			data := []byte(text)
			if form == Protobuf {
				data = encodeTheirs(t, text)
			}
			n := 0
			if err := form.Commands(data, func(*Command) bool { n++; return true }); err != nil || n != 1+strings.Count(strings.TrimSuffix(text, "\n"), "\n") {
				t.Errorf("%s in form %d: %d commands, %v", text, form, n, err)
			}
		}
	}
}

// FuzzCommands: what we read is what the module reads, in both forms.
func FuzzCommands(f *testing.F) {
	for _, text := range seeds() {
		f.Add([]byte(text))
		f.Add(encodeTheirs(f, text))
	}
	f.Add([]byte("\n"))
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if utf8.Valid(data) {
			check(t, JSON, protocol.TypeJSON, data)
		}
		check(t, Protobuf, protocol.TypeProtobuf, data)
	})
}

// replies are one of each kind, with every field.
func replies() []*Reply {
	info := &ClientInfo{User: "u", Client: "c", ConnInfo: Raw(`{"a":1}`), ChanInfo: Raw(`[2]`)}
	pub := &Publication{Data: Raw(`"<&>"`), Info: info, Offset: 1 << 60, Tags: map[string]string{"k": "v"}, Delta: true, Time: 1700000000000, Channel: "x"}
	sub := &SubscribeResult{Expires: true, TTL: 7, Recoverable: true, Epoch: "e", Publications: []*Publication{pub, {Offset: 2}}, Recovered: true, Offset: 9, Positioned: true, Data: Raw(`1`), WasRecovering: true, Delta: true}
	connect := &Connect{Client: "c", Version: "1", Expires: true, TTL: 2, Data: Raw(`3`), Subs: map[string]*SubscribeResult{"x": sub}, Ping: 25, Pong: true, Session: "s", Node: "n", Time: 5}
	push := func(p Push) *Reply {
		p.Channel = "x"
		return &Reply{Push: &p}
	}
	return []*Reply{
		{},
		{ID: 1, Error: Fail(Internal, "x")},
		{ID: 2, Connect: connect},
		{ID: 3, Subscribe: sub},
		{ID: 4, Unsubscribe: &Empty{}},
		{ID: 5, Publish: &Empty{}},
		{ID: 6, Presence: &PresenceResult{Presence: map[string]*ClientInfo{"c": info}}},
		{ID: 7, PresenceStats: &StatsResult{Clients: 3, Users: 2}},
		{ID: 8, History: &HistoryResult{Publications: []*Publication{pub}, Epoch: "e", Offset: 4}},
		{ID: 9, Ping: &Empty{}},
		{ID: 10, RPC: &Message{Data: Raw(`6`)}},
		{ID: 11, Refresh: &RefreshResult{Client: "c", Version: "1", Expires: true, TTL: 8}},
		{ID: 12, SubRefresh: &ExpiryResult{Expires: true, TTL: 9}},
		push(Push{Pub: pub}),
		push(Push{Join: &Presence{Info: info}}),
		push(Push{Leave: &Presence{Info: info}}),
		push(Push{Unsubscribe: &Unsubscribe{Code: 2500, Reason: "r"}}),
		push(Push{Message: &Message{Data: Raw(`7`)}}),
		push(Push{Disconnect: &Disconnect{Code: 3000, Reason: "r", Reconnect: true}}),
		push(Push{Refresh: &ExpiryResult{Expires: true, TTL: 3}}),
		push(Push{Subscribe: &Subscribed{Recoverable: true, Epoch: "e", Offset: 2, Positioned: true, Data: Raw(`8`)}}),
	}
}

// TestReplies: the module reads in both forms what we write, and all of it.
func TestReplies(t *testing.T) {
	for _, r := range replies() {
		text, packed := JSON.Append(nil, r), Protobuf.Append(nil, r)
		one, err := protocol.NewJSONReplyDecoder(text).Decode()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		two, err := protocol.NewProtobufReplyDecoder(packed).Decode()
		if err != nil {
			t.Fatalf("%s in protobuf: %v", text, err)
		}
		a, _ := protojson.Marshal(one)
		b, _ := protojson.Marshal(two)
		if string(spaceless(a)) != string(spaceless(b)) {
			t.Errorf("in JSON %s, in protobuf %s", a, b)
		}
		theirs, err := protocol.NewJSONReplyEncoder().Encode(two)
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, theirs, text) {
			t.Errorf("we write %s, the module %s", text, theirs)
		}
		if size := two.SizeVT(); len(packed) < size {
			t.Errorf("%s has %d bytes, the module's %d", text, len(packed), size)
		}
	}
}

func spaceless(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), " ", "")) }

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatalf("%s or %s is no JSON", a, b)
	}
	return reflect.DeepEqual(x, y)
}

// TestUni: who only listens gets pushes without the reply around them.
func TestUni(t *testing.T) {
	for want, r := range map[string]*Reply{
		`{}`:                           {},
		`{"channel":"x","pub":{}}`:     {Push: &Push{Channel: "x", Pub: &Publication{}}},
		`{"connect":{"client":"c"}}`:   {Connect: &Connect{Client: "c"}},
		`{"disconnect":{"code":3001}}`: {Push: &Push{Disconnect: &Disconnect{Code: 3001}}},
	} {
		if got := string(Uni.Append(nil, r)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEmulation(t *testing.T) {
	theirs := &protocol.EmulationRequest{Node: "n", Session: "s", Data: []byte(`"{\"id\":1}\n"`)}
	packed, err := theirs.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	for form, body := range map[Form]string{JSON: `{"node":"n","session":"s","data":"{\"id\":1}\n"}`, Protobuf: string(packed)} {
		got, err := form.Emulation([]byte(body))
		if err != nil || got.Node != "n" || got.Session != "s" || !strings.Contains(string(got.Data), "id") {
			t.Errorf("form %d: %+v, %v", form, got, err)
		}
		if _, err := form.Emulation([]byte("\xff")); err == nil {
			t.Errorf("form %d reads nonsense", form)
		}
	}
}

// The cost of a small publication for all its subscribers together, and of a client's
// publish, ours and the module's.
func BenchmarkPush(b *testing.B) {
	data := []byte(`{"title":"order 17 was shipped","n":17}`)
	for name, form := range map[string]Form{"json": JSON, "protobuf": Protobuf} {
		b.Run("ours/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				form.Append(nil, &Reply{Push: &Push{Channel: "news", Pub: &Publication{Data: data, Offset: 17}}})
			}
		})
	}
	for name, kind := range map[string]protocol.Type{"json": protocol.TypeJSON, "protobuf": protocol.TypeProtobuf} {
		b.Run("module/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := &protocol.Reply{Push: &protocol.Push{Channel: "news", Pub: &protocol.Publication{Data: data, Offset: 17}}}
				e := protocol.GetDataEncoder(kind)
				text, err := protocol.GetReplyEncoder(kind).Encode(r)
				if err != nil {
					b.Fatal(err)
				}
				_ = e.Encode(text)
				e.Finish()
				protocol.PutDataEncoder(kind, e)
			}
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	text := `{"id":3,"publish":{"channel":"news","data":{"title":"order 17 was shipped","n":17}}}`
	packed := encodeTheirs(b, text)
	for name, form := range map[string]Form{"json": JSON, "protobuf": Protobuf} {
		data := []byte(text)
		if form == Protobuf {
			data = packed
		}
		b.Run("ours/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := form.Commands(data, func(*Command) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("module/"+name, func(b *testing.B) {
			kind := protocol.TypeJSON
			if form == Protobuf {
				kind = protocol.TypeProtobuf
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeTheirs(kind, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
