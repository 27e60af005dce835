package websocket_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"

	"millrace/internal/access/token"
	"millrace/websocket"
	"millrace/websocket/auth"
	"millrace/websocket/channels"
)

// sdkSecret signs the tokens of these tests.
const sdkSecret = "0123456789abcdef0123456789abcdef"

// sdkToken is a token with claims (RFC 7515, appendix A.1).
func sdkToken(t *testing.T, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString(body)
	mac := hmac.New(sha256.New, []byte(sdkSecret))
	mac.Write([]byte(text))
	return text + "." + enc.EncodeToString(mac.Sum(nil))
}

func sdkOptions() websocket.Options {
	return websocket.Options{
		Channels: &channels.Options{Centrifuge: true, Presence: true, Auth: auth.Options{JWT: &token.Options{Secret: sdkSecret}}},
		Ping:     time.Second, PongTimeout: time.Second, Reconnect: 10 * time.Millisecond,
	}
}

// sdkServer is a server for SDKs.
type sdkServer struct {
	front
	t *testing.T
}

func newSDKServer(t *testing.T, o websocket.Options, secure bool) *sdkServer {
	t.Helper()
	if secure && extended() {
		secure = false // the SDK knows no WebSockets over HTTP/2
	}
	return &sdkServer{serve(t, "sdk", secure, newHandler(t, newEngine(t), o, nil)), t}
}

// publish publishes over HTTP, as a program on this machine.
func (s *sdkServer) publish(channel, data string) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls}}
	defer client.CloseIdleConnections()
	resp, err := client.Post(s.url+"/publish?channel="+channel, "application/json", strings.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("publishing: %s", resp.Status)
	}
}

// goClient is a client of the SDK for Go, and what has happened to it.
type goClient struct {
	*centrifuge.Client
	t      *testing.T
	events chan string

	mu   sync.Mutex
	conn net.Conn // the latest
}

// sdkClaims are what a client of the tests may do.
func sdkClaims(user string, more map[string]any) map[string]any {
	all := []string{"*"}
	claims := map[string]any{"sub": user, "info": map[string]string{"name": user}, "subscribe": all, "publish": all, "presence": all}
	for key, value := range more {
		claims[key] = value
	}
	return claims
}

func (s *sdkServer) client(protobuf bool, getToken func() string) *goClient {
	s.t.Helper()
	k := &goClient{t: s.t, events: make(chan string, 1000)}
	url := "ws" + strings.TrimPrefix(s.url, "http") + "/connection/websocket"
	config := centrifuge.Config{
		GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) { return getToken(), nil }, TLSConfig: s.tls,
		HandshakeTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, MaxServerPingDelay: patience,
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			k.mu.Lock()
			defer k.mu.Unlock()
			k.conn = nc
			return nc, err
		},
	}
	if protobuf {
		k.Client = centrifuge.NewProtobufClient(url, config)
	} else {
		k.Client = centrifuge.NewJsonClient(url, config)
	}
	k.OnConnected(func(centrifuge.ConnectedEvent) { k.event("connected") })
	k.OnDisconnected(func(e centrifuge.DisconnectedEvent) { k.event("disconnected %d", e.Code) })
	k.Client.OnSubscribed(func(e centrifuge.ServerSubscribedEvent) {
		k.event("given %s recovered=%v", e.Channel, e.Recovered)
	})
	k.Client.OnPublication(func(e centrifuge.ServerPublicationEvent) { k.event("given %s %s", e.Channel, e.Data) })
	s.t.Cleanup(k.Close)
	return k
}

func (k *goClient) event(format string, args ...any) { k.events <- fmt.Sprintf(format, args...) }

// cut breaks the connection.
func (k *goClient) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn.Close()
}

// wants waits for the next events.
func (k *goClient) wants(want ...string) {
	k.t.Helper()
	for i := range want {
		select {
		case got := <-k.events:
			if got != want[i] {
				k.t.Fatalf("event %q, want %q of %q", got, want[i], want)
			}
		case <-time.After(patience):
			k.t.Fatalf("no event, want %q of %q", want[i], want)
		}
	}
}

func (k *goClient) subscribe(channel string, c centrifuge.SubscriptionConfig) *centrifuge.Subscription {
	k.t.Helper()
	sub, err := k.NewSubscription(channel, c)
	if err != nil {
		k.t.Fatal(err)
	}
	sub.OnSubscribed(func(e centrifuge.SubscribedEvent) { k.event("subscribed %s recovered=%v", channel, e.Recovered) })
	sub.OnUnsubscribed(func(e centrifuge.UnsubscribedEvent) { k.event("unsubscribed %s %d", channel, e.Code) })
	sub.OnError(func(e centrifuge.SubscriptionErrorEvent) { k.event("error %s %v", channel, e.Error) })
	sub.OnJoin(func(e centrifuge.JoinEvent) { k.event("join %s", e.User) })
	sub.OnLeave(func(e centrifuge.LeaveEvent) { k.event("leave %s", e.User) })
	sub.OnPublication(func(e centrifuge.PublicationEvent) {
		from := ""
		if e.Info != nil {
			from = " by " + e.Info.User + " " + string(e.Info.ConnInfo)
		}
		k.event("%s %d %s%s", channel, e.Offset, e.Data, from)
	})
	if err := sub.Subscribe(); err != nil {
		k.t.Fatal(err)
	}
	return sub
}

func (k *goClient) connect() {
	k.t.Helper()
	if err := k.Connect(); err != nil {
		k.t.Fatal(err)
	}
	k.wants("connected")
	// Behind its event the SDK subscribes to what it has; what is subscribed to meanwhile it
	// would ask for twice. An answer comes after that.
	if _, err := k.PresenceStats(k.t.Context(), "settled"); err != nil {
		k.t.Fatal(err)
	}
}

// TestCentrifugeGo is a session of the SDK for Go, in both forms, plain and over TLS.
func TestCentrifugeGo(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, protobuf := range []bool{false, true} {
			t.Run(fmt.Sprintf("tls=%v/protobuf=%v", secure, protobuf), func(t *testing.T) {
				goSession(t, newSDKServer(t, sdkOptions(), secure), protobuf)
			})
		}
	}
}

func goSession(t *testing.T, s *sdkServer, protobuf bool) {
	ctx := t.Context()
	claims := func(user string, more map[string]any) func() string {
		return func() string { return sdkToken(t, sdkClaims(user, more)) }
	}
	ann, bob := s.client(protobuf, claims("ann", nil)), s.client(!protobuf, claims("bob", map[string]any{"channels": []string{"own"}}))
	ann.connect()
	news := ann.subscribe("news", centrifuge.SubscriptionConfig{Recoverable: true, JoinLeave: true})
	ann.wants("subscribed news recovered=false", "join ann")
	bob.connect()
	bob.wants("given own recovered=false")
	bob.subscribe("news", centrifuge.SubscriptionConfig{})
	bob.wants("subscribed news recovered=false")
	ann.wants("join bob")

	if _, err := news.Publish(ctx, []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	ann.wants(`news 1 {"n":1} by ann {"name":"ann"}`)
	bob.wants(`news 1 {"n":1} by ann {"name":"ann"}`)
	s.publish("news", `2`)
	s.publish("own", `"for bob"`)
	ann.wants("news 2 2")
	bob.wants("news 2 2", `given own "for bob"`)

	presence, err := ann.Presence(ctx, "news")
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, info := range presence.Clients {
		users = append(users, info.User+string(info.ConnInfo))
	}
	slices.Sort(users)
	if want := []string{`ann{"name":"ann"}`, `bob{"name":"bob"}`}; !slices.Equal(users, want) {
		t.Errorf("present are %q, want %q", users, want)
	}
	stats, err := ann.PresenceStats(ctx, "news")
	if err != nil || stats.NumClients != 2 || stats.NumUsers != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
	h, err := ann.History(ctx, "news", centrifuge.WithHistoryLimit(1))
	if err != nil || len(h.Publications) != 1 || h.Publications[0].Offset != 1 || h.Offset != 2 {
		t.Errorf("the first page is %+v, %v", h, err)
	}
	since := &centrifuge.StreamPosition{Epoch: h.Epoch, Offset: 1}
	if h, err = ann.History(ctx, "news", centrifuge.WithHistoryLimit(5), centrifuge.WithHistorySince(since)); err != nil || len(h.Publications) != 1 || string(h.Publications[0].Data) != "2" {
		t.Errorf("the second page is %+v, %v", h, err)
	}
	_, err = ann.RPC(ctx, "sum", []byte(`[1,2]`))
	var no *centrifuge.Error
	if !errors.As(err, &no) || no.Code != 108 {
		t.Errorf("a call is answered with %v, want 108", err)
	}
	if protobuf { // in JSON it would be no command
		if _, err = ann.Publish(ctx, "news", []byte("no JSON")); !errors.As(err, &no) || no.Code != 107 {
			t.Errorf("data that is no JSON is answered with %v, want 107", err)
		}
	}

	// The connection breaks; what is published meanwhile is recovered, once and in order.
	bob.cut()
	s.publish("news", "3")
	s.publish("own", "4")
	recovered := map[string]bool{}
	for range 5 {
		select {
		case e := <-bob.events:
			recovered[e] = true
		case <-time.After(patience):
			t.Fatalf("bob has not come back: %v", recovered)
		}
	}
	for _, e := range []string{"connected", "given own recovered=true", "given own 4", "subscribed news recovered=true", "news 3 3"} {
		if !recovered[e] {
			t.Errorf("bob has not seen %q, but %v", e, recovered)
		}
	}
	for {
		e := <-ann.events
		if e == "news 3 3" {
			break
		}
		if e != "leave bob" && e != "join bob" && !strings.HasPrefix(e, "news") {
			t.Fatalf("ann has seen %q", e)
		}
	}
	if err := bob.Disconnect(); err != nil {
		t.Fatal(err)
	}
	bob.wants("disconnected 0")
	if err := news.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}

// TestCentrifugeGoTokens: tokens are renewed in time, those that have expired replaced,
// those that are wrong refused for good.
func TestCentrifugeGoTokens(t *testing.T) {
	s := newSDKServer(t, sdkOptions(), false)
	var asked atomic.Int32
	k := s.client(false, func() string {
		in := time.Hour
		switch asked.Add(1) {
		case 1:
			in = -time.Hour
		case 2:
			in = time.Second
		}
		return sdkToken(t, sdkClaims("ann", map[string]any{"exp": time.Now().Add(in).Unix()}))
	})
	k.connect()
	sub := func(user string) string {
		return sdkToken(t, map[string]any{"sub": user, "channel": "$own", "exp": time.Now().Add(time.Hour).Unix()})
	}
	k.subscribe("$own", centrifuge.SubscriptionConfig{Token: sub("ann")})
	k.wants("subscribed $own recovered=false")
	k.subscribe("$other", centrifuge.SubscriptionConfig{Token: sub("ann")})
	k.wants("error $other subscribe error: 103: permission denied: the token is for another channel", "unsubscribed $other 103")
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) && asked.Load() < 3 {
		time.Sleep(50 * time.Millisecond)
	}
	if n := asked.Load(); n != 3 || k.State() != centrifuge.StateConnected {
		t.Errorf("asked for %d tokens, and is %s", n, k.State())
	}
	wrong := s.client(true, func() string { return "x.y.z" })
	if err := wrong.Connect(); err != nil {
		t.Fatal(err)
	}
	wrong.wants("disconnected 3500")
}

// TestCentrifugeGoPings: a quiet client lives by the pings of the protocol, and comes back
// when its server sends it away.
func TestCentrifugeGoPings(t *testing.T) {
	o := sdkOptions()
	s := newSDKServer(t, o, false)
	k := s.client(false, func() string { return sdkToken(t, sdkClaims("ann", nil)) })
	k.connect()
	k.subscribe("news", centrifuge.SubscriptionConfig{})
	k.wants("subscribed news recovered=false")
	time.Sleep(5 * time.Second) // four pings
	s.publish("news", "1")
	k.wants("news 1 1")
	if k.State() != centrifuge.StateConnected {
		t.Errorf("it is %s", k.State())
	}
}

// TestSDKPathsAreOptional: without the option there is nothing at these paths.
func TestSDKPathsAreOptional(t *testing.T) {
	h, err := websocket.New(websocket.Options{Channels: &channels.Options{}}, websocket.Deps{ErrorLog: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, path := range []string{"websocket", "http_stream", "sse", "uni_sse", "uni_websocket", "uni_http_stream"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/connection/"+path, nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
