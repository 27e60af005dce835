// Package centrifuge has the messages of Centrifugo's client protocol, which its
// SDKs speak: their fields, in JSON and in protobuf.
//
// A frame holds one message or several. In JSON each stands in a line of its own;
// in protobuf each follows its length as a varint. A client sends a [Command], the
// server a [Reply]. A reply without an id is a push, and one with nothing at all is
// a ping, which a client answers with an empty command.
//
// Names and numbers of the fields are those of client.proto in
// github.com/centrifugal/protocol, whose decoder the tests compare ours with.
package centrifuge

import "encoding/json"

// Raw is what clients have sent, or get: JSON in the JSON form, in protobuf bytes
// that mean what the two ends say.
type Raw = json.RawMessage

// Command is what a client sends. Of several requests the first counts, in the
// order of the fields.
type Command struct {
	ID            uint32               `json:"id"`
	Connect       *ConnectRequest      `json:"connect"`
	Ping          *Empty               `json:"ping"`
	Subscribe     *SubscribeRequest    `json:"subscribe"`
	Unsubscribe   *ChannelRequest      `json:"unsubscribe"`
	Publish       *PublishRequest      `json:"publish"`
	Presence      *ChannelRequest      `json:"presence"`
	PresenceStats *ChannelRequest      `json:"presence_stats"`
	History       *HistoryRequest      `json:"history"`
	RPC           *RPCRequest          `json:"rpc"`
	Send          *Message             `json:"send"`
	Refresh       *RefreshRequest      `json:"refresh"`
	SubRefresh    *TokenChannelRequest `json:"sub_refresh"`
}

func (c *Command) fields(p *pass) {
	number(p, 1, &c.ID)
	one(p, 4, &c.Connect)
	one(p, 5, &c.Subscribe)
	one(p, 6, &c.Unsubscribe)
	one(p, 7, &c.Publish)
	one(p, 8, &c.Presence)
	one(p, 9, &c.PresenceStats)
	one(p, 10, &c.History)
	one(p, 11, &c.Ping)
	one(p, 12, &c.Send)
	one(p, 13, &c.RPC)
	one(p, 14, &c.Refresh)
	one(p, 15, &c.SubRefresh)
}

// Reply is what the server sends.
type Reply struct {
	ID            uint32           `json:"id,omitempty"`
	Error         *Error           `json:"error,omitempty"`
	Push          *Push            `json:"push,omitempty"`
	Connect       *Connect         `json:"connect,omitempty"`
	Subscribe     *SubscribeResult `json:"subscribe,omitempty"`
	Unsubscribe   *Empty           `json:"unsubscribe,omitempty"`
	Publish       *Empty           `json:"publish,omitempty"`
	Presence      *PresenceResult  `json:"presence,omitempty"`
	PresenceStats *StatsResult     `json:"presence_stats,omitempty"`
	History       *HistoryResult   `json:"history,omitempty"`
	Ping          *Empty           `json:"ping,omitempty"`
	RPC           *Message         `json:"rpc,omitempty"`
	Refresh       *RefreshResult   `json:"refresh,omitempty"`
	SubRefresh    *ExpiryResult    `json:"sub_refresh,omitempty"`
}

func (r *Reply) fields(p *pass) {
	number(p, 1, &r.ID)
	one(p, 2, &r.Error)
	one(p, 4, &r.Push)
	one(p, 5, &r.Connect)
	one(p, 6, &r.Subscribe)
	one(p, 7, &r.Unsubscribe)
	one(p, 8, &r.Publish)
	one(p, 9, &r.Presence)
	one(p, 10, &r.PresenceStats)
	one(p, 11, &r.History)
	one(p, 12, &r.Ping)
	one(p, 13, &r.RPC)
	one(p, 14, &r.Refresh)
	one(p, 15, &r.SubRefresh)
}

// Push is news that nobody has asked for.
type Push struct {
	Channel     string        `json:"channel,omitempty"`
	Pub         *Publication  `json:"pub,omitempty"`
	Join        *Presence     `json:"join,omitempty"`
	Leave       *Presence     `json:"leave,omitempty"`
	Unsubscribe *Unsubscribe  `json:"unsubscribe,omitempty"`
	Message     *Message      `json:"message,omitempty"`
	Subscribe   *Subscribed   `json:"subscribe,omitempty"`
	Disconnect  *Disconnect   `json:"disconnect,omitempty"`
	Refresh     *ExpiryResult `json:"refresh,omitempty"`
}

func (m *Push) fields(p *pass) {
	text(p, 2, &m.Channel)
	one(p, 4, &m.Pub)
	one(p, 5, &m.Join)
	one(p, 6, &m.Leave)
	one(p, 7, &m.Unsubscribe)
	one(p, 8, &m.Message)
	one(p, 9, &m.Subscribe)
	one(p, 11, &m.Disconnect)
	one(p, 12, &m.Refresh)
}

// Error says why a command has failed. Fail makes one.
type Error struct {
	Code      uint32 `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	Temporary bool   `json:"temporary,omitempty"` // the same command may succeed later
}

// Error implements error.
func (m *Error) Error() string { return m.Message }

func (m *Error) fields(p *pass) {
	number(p, 1, &m.Code)
	text(p, 2, &m.Message)
	flag(p, 3, &m.Temporary)
}

// Empty is a message without fields.
type Empty struct{}

func (*Empty) fields(*pass) {}

// ConnectRequest is the first command of every client.
type ConnectRequest struct {
	Token   string                       `json:"token"`
	Data    Raw                          `json:"data,omitempty"`
	Subs    map[string]*SubscribeRequest `json:"subs"` // of subscriptions that the server makes: where to go on
	Name    string                       `json:"name"`
	Version string                       `json:"version"`
	Headers map[string]string            `json:"headers"`
}

func (m *ConnectRequest) fields(p *pass) {
	text(p, 1, &m.Token)
	raw(p, 2, &m.Data)
	each(p, 3, &m.Subs)
	text(p, 4, &m.Name)
	text(p, 5, &m.Version)
	texts(p, 6, &m.Headers)
}

// Connect is the answer to it.
type Connect struct {
	Client  string                      `json:"client,omitempty"`
	Version string                      `json:"version,omitempty"`
	Expires bool                        `json:"expires,omitempty"`
	TTL     uint32                      `json:"ttl,omitempty"` // seconds until a new token is needed
	Data    Raw                         `json:"data,omitempty"`
	Subs    map[string]*SubscribeResult `json:"subs,omitempty"`
	Ping    uint32                      `json:"ping,omitempty"` // seconds between two pings
	Pong    bool                        `json:"pong,omitempty"` // the client is to answer them
	Session string                      `json:"session,omitempty"`
	Node    string                      `json:"node,omitempty"`
	Time    int64                       `json:"time,omitempty"`
}

func (m *Connect) fields(p *pass) {
	text(p, 1, &m.Client)
	text(p, 2, &m.Version)
	flag(p, 3, &m.Expires)
	number(p, 4, &m.TTL)
	raw(p, 5, &m.Data)
	each(p, 6, &m.Subs)
	number(p, 7, &m.Ping)
	flag(p, 8, &m.Pong)
	text(p, 9, &m.Session)
	text(p, 10, &m.Node)
	number(p, 11, &m.Time)
}

// SubscribeRequest asks for a channel.
type SubscribeRequest struct {
	Channel     string `json:"channel"`
	Token       string `json:"token"`
	Recover     bool   `json:"recover"` // go on behind Epoch and Offset
	Epoch       string `json:"epoch"`
	Offset      uint64 `json:"offset"`
	Data        Raw    `json:"data,omitempty"`
	Positioned  bool   `json:"positioned"`
	Recoverable bool   `json:"recoverable"`
	JoinLeave   bool   `json:"join_leave"`
	Delta       string `json:"delta"`
}

func (m *SubscribeRequest) fields(p *pass) {
	text(p, 1, &m.Channel)
	text(p, 2, &m.Token)
	flag(p, 3, &m.Recover)
	text(p, 6, &m.Epoch)
	number(p, 7, &m.Offset)
	raw(p, 8, &m.Data)
	flag(p, 9, &m.Positioned)
	flag(p, 10, &m.Recoverable)
	flag(p, 11, &m.JoinLeave)
	text(p, 12, &m.Delta)
}

// SubscribeResult is where a subscription begins.
type SubscribeResult struct {
	Expires       bool           `json:"expires,omitempty"`
	TTL           uint32         `json:"ttl,omitempty"`
	Recoverable   bool           `json:"recoverable,omitempty"`
	Epoch         string         `json:"epoch,omitempty"`
	Publications  []*Publication `json:"publications,omitempty"`
	Recovered     bool           `json:"recovered,omitempty"`
	Offset        uint64         `json:"offset,omitempty"`
	Positioned    bool           `json:"positioned,omitempty"`
	Data          Raw            `json:"data,omitempty"`
	WasRecovering bool           `json:"was_recovering,omitempty"`
	Delta         bool           `json:"delta,omitempty"`
}

func (m *SubscribeResult) fields(p *pass) {
	flag(p, 1, &m.Expires)
	number(p, 2, &m.TTL)
	flag(p, 3, &m.Recoverable)
	text(p, 6, &m.Epoch)
	list(p, 7, &m.Publications)
	flag(p, 8, &m.Recovered)
	number(p, 9, &m.Offset)
	flag(p, 10, &m.Positioned)
	raw(p, 11, &m.Data)
	flag(p, 12, &m.WasRecovering)
	flag(p, 13, &m.Delta)
}

// Subscribed says of a subscription that the server has made where it begins.
type Subscribed struct {
	Recoverable bool   `json:"recoverable,omitempty"`
	Epoch       string `json:"epoch,omitempty"`
	Offset      uint64 `json:"offset,omitempty"`
	Positioned  bool   `json:"positioned,omitempty"`
	Data        Raw    `json:"data,omitempty"`
}

func (m *Subscribed) fields(p *pass) {
	flag(p, 1, &m.Recoverable)
	text(p, 4, &m.Epoch)
	number(p, 5, &m.Offset)
	flag(p, 6, &m.Positioned)
	raw(p, 7, &m.Data)
}

// ChannelRequest is about a channel, and nothing else.
type ChannelRequest struct {
	Channel string `json:"channel"`
}

func (m *ChannelRequest) fields(p *pass) { text(p, 1, &m.Channel) }

// TokenChannelRequest brings a new token for a subscription.
type TokenChannelRequest struct {
	Channel string `json:"channel"`
	Token   string `json:"token"`
}

func (m *TokenChannelRequest) fields(p *pass) {
	text(p, 1, &m.Channel)
	text(p, 2, &m.Token)
}

// PublishRequest publishes.
type PublishRequest struct {
	Channel string `json:"channel"`
	Data    Raw    `json:"data,omitempty"`
}

func (m *PublishRequest) fields(p *pass) {
	text(p, 1, &m.Channel)
	raw(p, 2, &m.Data)
}

// HistoryRequest asks for a page of the history.
type HistoryRequest struct {
	Channel string    `json:"channel"`
	Limit   int32     `json:"limit"` // 0: none, only where the channel stands; below: all
	Since   *Position `json:"since"`
	Reverse bool      `json:"reverse"`
}

func (m *HistoryRequest) fields(p *pass) {
	text(p, 1, &m.Channel)
	number(p, 7, &m.Limit)
	one(p, 8, &m.Since)
	flag(p, 9, &m.Reverse)
}

// Position is a place in a channel.
type Position struct {
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"`
}

func (m *Position) fields(p *pass) {
	number(p, 1, &m.Offset)
	text(p, 2, &m.Epoch)
}

// RPCRequest calls a method of the application.
type RPCRequest struct {
	Data   Raw    `json:"data,omitempty"`
	Method string `json:"method"`
}

func (m *RPCRequest) fields(p *pass) {
	raw(p, 1, &m.Data)
	text(p, 2, &m.Method)
}

// RefreshRequest brings a new token for the connection.
type RefreshRequest struct {
	Token string `json:"token"`
}

func (m *RefreshRequest) fields(p *pass) { text(p, 1, &m.Token) }

// RefreshResult is what a new token has changed.
type RefreshResult struct {
	Client  string `json:"client,omitempty"`
	Version string `json:"version,omitempty"`
	Expires bool   `json:"expires,omitempty"`
	TTL     uint32 `json:"ttl,omitempty"`
}

func (m *RefreshResult) fields(p *pass) {
	text(p, 1, &m.Client)
	text(p, 2, &m.Version)
	flag(p, 3, &m.Expires)
	number(p, 4, &m.TTL)
}

// ExpiryResult is when something ends.
type ExpiryResult struct {
	Expires bool   `json:"expires,omitempty"`
	TTL     uint32 `json:"ttl,omitempty"`
}

func (m *ExpiryResult) fields(p *pass) {
	flag(p, 1, &m.Expires)
	number(p, 2, &m.TTL)
}

// Publication is one of a channel.
type Publication struct {
	Data    Raw               `json:"data,omitempty"`
	Info    *ClientInfo       `json:"info,omitempty"`
	Offset  uint64            `json:"offset,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Delta   bool              `json:"delta,omitempty"`
	Time    int64             `json:"time,omitempty"` // ms since 1970
	Channel string            `json:"channel,omitempty"`
}

func (m *Publication) fields(p *pass) {
	raw(p, 4, &m.Data)
	one(p, 5, &m.Info)
	number(p, 6, &m.Offset)
	texts(p, 7, &m.Tags)
	flag(p, 8, &m.Delta)
	number(p, 9, &m.Time)
	text(p, 10, &m.Channel)
}

// ClientInfo is a client as others see it.
type ClientInfo struct {
	User     string `json:"user"`
	Client   string `json:"client"`
	ConnInfo Raw    `json:"conn_info,omitempty"`
	ChanInfo Raw    `json:"chan_info,omitempty"`
}

func (m *ClientInfo) fields(p *pass) {
	text(p, 1, &m.User)
	text(p, 2, &m.Client)
	raw(p, 3, &m.ConnInfo)
	raw(p, 4, &m.ChanInfo)
}

// Presence is who has come or gone.
type Presence struct {
	Info *ClientInfo `json:"info,omitempty"`
}

func (m *Presence) fields(p *pass) { one(p, 1, &m.Info) }

// Unsubscribe is the server's end of a subscription: a code from 2500 on asks the
// client to subscribe again.
type Unsubscribe struct {
	Code   uint32 `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (m *Unsubscribe) fields(p *pass) {
	number(p, 2, &m.Code)
	text(p, 3, &m.Reason)
}

// Disconnect is the server's end of a connection that has no close frames.
type Disconnect struct {
	Code      uint32 `json:"code,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Reconnect bool   `json:"reconnect,omitempty"`
}

func (m *Disconnect) fields(p *pass) {
	number(p, 1, &m.Code)
	text(p, 2, &m.Reason)
	flag(p, 3, &m.Reconnect)
}

// Message is data without a channel.
type Message struct {
	Data Raw `json:"data,omitempty"`
}

func (m *Message) fields(p *pass) { raw(p, 1, &m.Data) }

// PresenceResult is who is in a channel, by client.
type PresenceResult struct {
	Presence map[string]*ClientInfo `json:"presence"`
}

func (m *PresenceResult) fields(p *pass) { each(p, 1, &m.Presence) }

// StatsResult is how many are.
type StatsResult struct {
	Clients uint32 `json:"num_clients"`
	Users   uint32 `json:"num_users"`
}

func (m *StatsResult) fields(p *pass) {
	number(p, 1, &m.Clients)
	number(p, 2, &m.Users)
}

// HistoryResult is a page of the history, and where the channel stands.
type HistoryResult struct {
	Publications []*Publication `json:"publications"`
	Epoch        string         `json:"epoch"`
	Offset       uint64         `json:"offset"`
}

func (m *HistoryResult) fields(p *pass) {
	list(p, 1, &m.Publications)
	text(p, 2, &m.Epoch)
	number(p, 3, &m.Offset)
}
