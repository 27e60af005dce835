package nats

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/store/bus"
)

// TestForm: publications, and what machines say to each other, are read and written as they
// always were: machines of two versions share a stream while they are upgraded.
func TestForm(t *testing.T) {
	b := &Bus{o: Options{Name: "millrace"}, id: "us"}
	at := time.UnixMilli(1_700_000_000_000)
	p := &pending{token: "chat=3A1", key: keyOf("chat=3A1", "An id"), message: bus.Message{Channel: "chat:1", ID: "An id", Data: []byte(`"x"`), Time: at}}
	m := b.wire(p)
	want := map[string]string{"Nats-Msg-Id": "It5JnqJ_0gnv5kkofF3MAg", "Millrace-Id": "=41n=20id", "Millrace-Time": "1700000000000"}
	for name, value := range want {
		if got := m.Header.Get(name); got != value {
			t.Errorf("%s is %q, and was %q", name, got, value)
		}
	}
	if m.Subject != "millrace.in.chat=3A1" || string(m.Data) != `"x"` || len(m.Header) != len(want) {
		t.Errorf("%+v", m)
	}
	s, before, ok := b.live(&nats.Msg{Subject: "millrace.out.chat=3A1", Data: []byte(`"x"`), Header: nats.Header{
		"Nats-Sequence": {"7"}, "Nats-Last-Sequence": {"5"}, "Millrace-Id": {"=41n=20id"}, "Millrace-Time": {"1700000000000"},
	}})
	if got := s.message("chat:1"); !ok || before != 5 || s.token != encode("chat:1") || got.ID != "An id" || got.Offset != 7 || !got.Time.Equal(at) {
		t.Errorf("%+v behind %d, %v", got, before, ok)
	}
	for text, say := range map[string]any{
		`{"id":"us"}`:                beatBody{ID: "us"},
		`{"id":"us","hello":true}`:   beatBody{ID: "us", Hello: true},
		`{"id":"us","bye":true}`:     beatBody{ID: "us", Bye: true},
		`{"id":"us","channel":"x"}`:  membersRequest{"us", "x"},
		`{"id":"us","members":null}`: part{ID: "us"},
		`{"id":"us","members":[{"client":"c","user":"u","info":"e30="}],"more":true}`: part{"us", []bus.Member{{Client: "c", User: "u", Info: []byte("{}")}}, true},
	} {
		if got, err := json.Marshal(say); err != nil || string(got) != text {
			t.Errorf("%s is written, and was %s; %v", got, text, err)
		}
	}
	if limits, token := remarks("channels of millrace; limits since 7; order ABC"); limits != 7 || token != "ABC" {
		t.Errorf("the description of the stream says %d and %q", limits, token)
	}
}
