package websocket_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
	"github.com/centrifugal/gocent/v3"
)

const apiKey = "0123456789abcdef"

func apiServer(t *testing.T) *sdkServer {
	t.Helper()
	o := sdkOptions()
	o.Channels.Keys = []string{apiKey}
	return newSDKServer(t, o, false)
}

// TestGocent is a session of Centrifugo's API client for Go.
func TestGocent(t *testing.T) {
	s := apiServer(t)
	ctx := t.Context()
	api := gocent.New(gocent.Config{Addr: s.url + "/api", Key: apiKey, HTTPClient: &http.Client{Timeout: patience}})
	k := s.client(false, func() string { return sdkToken(t, sdkClaims("ann", nil)) })
	k.OnServerUnsubscribed(t)
	k.connect()
	k.subscribe("news", centrifuge.SubscriptionConfig{})
	k.wants("subscribed news recovered=false")

	at, err := api.Publish(ctx, "news", []byte(`{"n":1}`))
	if err != nil || at.Offset != 1 || at.Epoch == "" {
		t.Errorf("published at %+v, %v", at, err)
	}
	k.wants(`news 1 {"n":1}`)
	all, err := api.Broadcast(ctx, []string{"news", "other", ""}, []byte(`2`))
	if err != nil || len(all.Responses) != 3 || all.Responses[0].Result.Offset != 2 || all.Responses[1].Result.Offset != 1 || all.Responses[2].Error == nil || all.Responses[2].Error.Code != 107 {
		t.Errorf("broadcast: %+v, %v", all, err)
	}
	k.wants("news 2 2")
	var no *gocent.Error
	if _, err := api.Publish(ctx, "", []byte(`1`)); !errors.As(err, &no) || no.Code != 107 {
		t.Errorf("publishing nowhere: %v", err)
	}
	if err := api.HistoryRemove(ctx, "news"); !errors.As(err, &no) || no.Code != 108 {
		t.Errorf("removing a history: %v", err)
	}
	presence, err := api.Presence(ctx, "news")
	if err != nil || len(presence.Presence) != 1 {
		t.Errorf("presence: %+v, %v", presence, err)
	}
	for _, info := range presence.Presence {
		if info.User != "ann" || string(info.ConnInfo) != `{"name":"ann"}` {
			t.Errorf("present is %+v", info)
		}
	}
	if stats, err := api.PresenceStats(ctx, "news"); err != nil || stats.NumClients != 1 || stats.NumUsers != 1 {
		t.Errorf("counted %+v, %v", stats, err)
	}
	h, err := api.History(ctx, "news", gocent.WithLimit(1), gocent.WithReverse(true))
	if err != nil || len(h.Publications) != 1 || string(h.Publications[0].Data) != "2" || h.Offset != 2 {
		t.Errorf("history: %+v, %v", h, err)
	}
	list, err := api.Channels(ctx, gocent.WithPattern("ne*"))
	if err != nil || len(list.Channels) != 1 {
		t.Errorf("channels: %+v, %v", list, err)
	}
	info, err := api.Info(ctx)
	if err != nil || len(info.Nodes) != 1 || info.Nodes[0].NumClients != 1 {
		t.Errorf("info: %+v, %v", info, err)
	}
	pipe := api.Pipe()
	_ = pipe.AddPublish("news", []byte(`3`))
	_ = pipe.AddPresenceStats("news")
	if replies, err := api.SendPipe(ctx, pipe); err != nil || len(replies) != 2 || replies[1].Error != nil {
		t.Errorf("two at once: %+v, %v", replies, err)
	}
	k.wants("news 3 3")

	// What is ordered of a user's clients.
	if err := api.Subscribe(ctx, "own", "bob"); err != nil {
		t.Error(err)
	}
	if err := api.Subscribe(ctx, "own", "ann", gocent.WithSubscribeData([]byte(`{"a":1}`))); err != nil {
		t.Error(err)
	}
	k.wants("given own recovered=false")
	s.publishWithKey("own", `4`)
	k.wants("given own 4")
	if err := api.Unsubscribe(ctx, "own", "ann"); err != nil {
		t.Error(err)
	}
	k.wants("taken own")
	if err := api.Unsubscribe(ctx, "news", "ann"); err != nil {
		t.Error(err)
	}
	k.wants("unsubscribed news 2000")
	if err := api.Disconnect(ctx, "ann", gocent.WithDisconnectClientWhitelist([]string{"nobody"})); err != nil {
		t.Error(err)
	}
	k.wants("disconnected 3503")

	wrong := gocent.New(gocent.Config{Addr: s.url + "/api", Key: "wrong", HTTPClient: &http.Client{Timeout: patience}})
	var status gocent.ErrStatusCode
	if _, err := wrong.Info(ctx); !errors.As(err, &status) || status.Code != http.StatusUnauthorized {
		t.Errorf("with a wrong key: %v", err)
	}
}

// OnServerUnsubscribed has the end of a subscription of the server noted.
func (k *goClient) OnServerUnsubscribed(*testing.T) {
	k.OnUnsubscribed(func(e centrifuge.ServerUnsubscribedEvent) { k.event("taken %s", e.Channel) })
}

// publishWithKey is publish where a key is needed.
func (s *sdkServer) publishWithKey(channel, data string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/publish?channel="+channel, strings.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", apiKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("publishing: %s", resp.Status)
	}
}

// centVersion is the API client for Python, which comes from PyPI, once.
const centVersion = "5.2.0"

// TestCent is a session of Centrifugo's API client for Python.
func TestCent(t *testing.T) {
	if testing.Short() {
		t.Skip("it fetches packages")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("there is no folder for caches: ", err)
	}
	dir := filepath.Join(cache, "millrace-tests", "cent-"+centVersion)
	if _, err := os.Stat(filepath.Join(dir, "cent", "__init__.py")); err != nil {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, python, "-m", "pip", "install", "-q", "--target", dir, "cent=="+centVersion).CombinedOutput(); err != nil {
			t.Skipf("pip cannot fetch cent: %v\n%s", err, out)
		}
	}
	s := apiServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", centSession, s.url+"/api", apiKey)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	out, err := cmd.CombinedOutput()
	const want = `1 2 1
1 True
{'n': 2} 2
0 0
{}
3 2
107
1
{'a': 'b'}
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n got %s\nwant %s", err, out, want)
	}
}

const centSession = `
import sys
from cent import *
api = Client(sys.argv[1], sys.argv[2])
first = api.publish(PublishRequest(channel="news", data={"n": 1}, idempotency_key="once"))
second = api.publish(PublishRequest(channel="news", data={"n": 2}))
again = api.publish(PublishRequest(channel="news", data={"n": 1}, idempotency_key="once"))
print(first.offset, second.offset, again.offset)
all = api.broadcast(BroadcastRequest(channels=["other"], data={"n": 3}))
print(all.responses[0].result.offset, all.responses[0].result.epoch == first.epoch)
page = api.history(HistoryRequest(channel="news", limit=1, reverse=True))
print(page.publications[0].data, page.offset)
stats = api.presence_stats(PresenceStatsRequest(channel="news"))
print(stats.num_clients, stats.num_users)
print(api.presence(PresenceRequest(channel="news")).presence)
api.disconnect(DisconnectRequest(user="nobody", disconnect=Disconnect(code=4000, reason="go")))
api.subscribe(SubscribeRequest(user="nobody", channel="news"))
api.unsubscribe(UnsubscribeRequest(user="nobody", channel="news"))
api.refresh(RefreshRequest(user="nobody", expired=True))
api.channels(ChannelsRequest())
batch = api.batch(BatchRequest(requests=[PublishRequest(channel="news", data={"n": 4}), PublishRequest(channel="other", data={})]))
print(*(r.offset for r in batch.replies))
try:
    api.publish(PublishRequest(channel="news", data={}, tags={"a": "b" * 5000}))
except CentApiResponseError as e:
    print(e.code)
print(len(api.info(InfoRequest()).nodes))
api.publish(PublishRequest(channel="news", data={"n": 5}, tags={"a": "b"}))
print(api.history(HistoryRequest(channel="news", limit=1, reverse=True)).publications[0].tags)
`
