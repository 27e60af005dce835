package fill

import "sync"

// BufferSize is that of Buffers, in bytes.
const BufferSize = 32 << 10

// Buffers are *[BufferSize]byte, for bodies on their way.
var Buffers = sync.Pool{New: func() any { return new([BufferSize]byte) }}
