package engine_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/ops/dashboard"
	"millrace/internal/process/servertest"
)

// boardPage reads the panels of a page of its own.
func boardPage(t *testing.T, admin, target string) map[string]dashboard.Panel {
	t.Helper()
	_, text := look(t, admin+"/dashboard/"+target, "Accept", "application/json")
	var list []dashboard.Panel
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %v in %s", target, err, text)
	}
	all := map[string]dashboard.Panel{}
	for _, p := range list {
		all[p.ID] = p
	}
	return all
}

// TestDashboardChannels: who is subscribed to what, and what was published, also where that
// is text that others have chosen.
func TestDashboardChannels(t *testing.T) {
	t.Parallel() // it mostly waits
	srv := start(t, withAdmin(t, `
listen: 127.0.0.1:0
log: {format: off}
admin: {listen: "127.0.0.1:0"}
sites:
- routes:
    /live/: {websocket: {channels: {presence: true, auth: {subscribe: ["*"], publish: ["*"]}}}}
    /quiet/: {websocket: channels}
`))
	admin := "http://" + srv.AdminAddr()
	const name = `<b>news&"`
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := open(t, srv, "/live/")
		if err := s.send(fmt.Sprintf(`{"subscribe":%s}`, quoted)); err != nil {
			t.Fatal(err)
		}
		s.hear(t)
	}
	s := open(t, srv, "/live/")
	long := strings.Repeat("ä", 300)
	for _, data := range []string{"first", long} {
		if err := s.send(fmt.Sprintf(`{"publish":%s,"data":%q,"id":1}`, quoted, data)); err != nil {
			t.Fatal(err)
		}
		s.hear(t)
	}
	list := boardPage(t, admin, "channels")["channels"]
	if len(list.Rows) != 1 || list.Rows[0].Values[0] != name || list.Rows[0].Values[2] != 2.0 {
		t.Fatalf("listed are %+v", list.Rows)
	}
	if rows := boardPage(t, admin, "channels?filter=none")["channels"].Rows; len(rows) != 0 {
		t.Errorf("with a filter listed are %+v", rows)
	}
	own := boardPage(t, admin, "channels?"+url.Values{"route": {list.Rows[0].Values[1].(string)}, "channel": {name}}.Encode())
	if members := own["members"].Rows; len(members) != 2 || members[0].Values[1] == members[1].Values[1] {
		t.Errorf("in it are %+v", members)
	}
	history := own["history"].Rows
	if len(history) != 2 || history[0].Values[1] != 2.0 || history[1].Values[3] != `"first"` || history[0].Values[3] != `"`+strings.Repeat("ä", 99)+" …" {
		t.Errorf("the history is %+v", history)
	}
	_, text := look(t, admin+"/dashboard/channels", "Accept", "text/html")
	if strings.Contains(text, "<b>news") || !strings.Contains(text, "/dashboard/channels?channel=%3Cb%3Enews%26%22&amp;route=") {
		t.Errorf("the page is\n%s", text)
	}
	if code, _ := look(t, admin+"/dashboard/channels?route=none&channel=x"); code != http.StatusOK {
		t.Errorf("a route that is not there: %d", code)
	}
}

// TestDashboardTroubles: limits that are nearly reached and stores that are down are said
// before visitors say it.
func TestDashboardTroubles(t *testing.T) {
	t.Parallel()                            // it mostly waits
	t.Cleanup(func() { _ = goleak.Find() }) // the client of Redis sleeps for a moment after its end
	srv := start(t, withAdmin(t, fmt.Sprintf(`
listen: 127.0.0.1:0
log: {format: off}
admin: {listen: "127.0.0.1:0"}
limits: {websockets: 2, websockets_per_address: 2, connections: 20, connections_per_address: 20}
sites:
- routes:
    /live/: {websocket: channels}
    /api/: {cache: {to: %[1]s, shared: "redis://%[2]s"}}
`, deadAddress(t), strings.TrimPrefix(deadAddress(t), "http://"))))
	said := func(part string) func() bool {
		return func() bool {
			return strings.Contains(fmt.Sprint(panel(t, "http://"+srv.AdminAddr(), "problems").Rows), part)
		}
	}
	for range 2 {
		open(t, srv, "/live/")
	}
	servertest.Eventually(t, "the limit is said", said("2 of 2 WebSockets are open"))
	for range 18 {
		nc, err := net.Dial("tcp", strings.TrimPrefix(srv.Addrs()[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
	}
	servertest.Eventually(t, "the other limit is said", said("of 20 connections are open"))
	servertest.Eventually(t, "the store is said", said("cannot be used for the cache of /api/"))
}
