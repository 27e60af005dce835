package frame

// Prepared is one message for many clients, made ready once: plain, and once
// for each setting of compression that somebody asks for. Safe for concurrent
// use; what it returns must not be changed.
type Prepared struct{}

// Prepare takes the payload over. Messages shorter than compressFrom bytes,
// and those that would not become shorter, are never compressed; 0 is never.
func Prepare(op Opcode, payload []byte, compressFrom int) *Prepared { panic("not built") }

// Bytes is the whole frame, for a connection with these params.
func (p *Prepared) Bytes(with Params) []byte { panic("not built") }

// Payload is what was prepared.
func (p *Prepared) Payload() []byte { panic("not built") }
