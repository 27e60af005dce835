package meter

import "sync/atomic"

// Images counts what the image conversion of one route does.
type Images struct {
	Route string

	Served    Reasons // answers: variant, original, and why (see package images)
	Converted Reasons // conversions that ended well, by "format level"
	Failed    Reasons // those that did not, by cause
	Shed      Counter // conversions that found no place in the queue
	NoGain    Counter // conversions whose result was not smaller
	BytesIn   Counter // of originals converted
	BytesOut  Counter // of the variants made of them
	CPU       Counter // nanoseconds of conversions, child processes included

	Waiting     Gauge     // conversions in the queue now
	Running     Gauge     // and under way
	Memory      Gauge     // predicted bytes of those
	WorkerBytes Gauge     // resident memory of worker processes
	Workers     Gauge     // processes
	Crashed     Gauge     // workers that died of an image, since the start
	Took        Histogram // a conversion, without its wait
	Waited      Histogram // a client, for a conversion

	Variants     Gauge // kept
	VariantBytes Gauge
	Dropped      Counter // variants whose original changed or went away

	Encoders atomic.Pointer[[]Encoder] // of the formats that can be made; nil before they are known
}

// Encoder is who writes a format, and on which level: tools or embedded.
type Encoder struct{ Format, Level, By string }

// Images returns the counters of a route's images and makes them at the first
// call, as Cache does.
func (m *Meters) Images(route string) *Images {
	return m.images.get(route, func(route string) *Images { return &Images{Route: route} })
}

// AllImages lists those that exist, ordered by route.
func (m *Meters) AllImages() []*Images { return m.images.list() }
