package agui

import "slices"

// chunkTypes are the shorthands: each stands for the start, the content and the end
// of a span. They are spelled out, so that whoever reads the run knows one form.
var chunkTypes = map[string]kind{
	TypeTextChunk: kindText, TypeToolChunk: kindTool, typeReasoningChunk: kindReasoningMessage,
}

// passing are the types that may come between the chunks of one span.
var passing = []string{"RAW", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE"}

// endChunk gives the end of what chunks opened, which any event but those that pass
// by ends.
func (o *Order) endChunk(before string) [][]byte {
	if o.chunk == nil || slices.Contains(passing, before) {
		return nil
	}
	s := *o.chunk
	o.chunk = nil
	at := slices.Index(o.open, s)
	o.open = slices.Delete(o.open, at, at+1)
	return [][]byte{s.close()}
}

// expand spells a chunk out. The first of a span names it; those without a name go
// on with what is open.
func (o *Order) expand(k kind, f fields) ([][]byte, *ViolationError) {
	s := k.of(f)
	going := o.chunk != nil && o.chunk.kind == k && (s.id == "" || s.id == o.chunk.id)
	var said [][]byte
	if !going {
		said = o.endChunk("")
		if s.id == "" {
			return said, broken(RuleChunk, "it goes on with nothing", k.idField()+" in the first chunk")
		}
		if k == kindTool && f.text("toolCallName") == "" {
			return said, broken(RuleChunk, "the first chunk of a call doesn't name the tool", "toolCallName")
		}
		if o.seen[s] {
			return said, broken(RuleOpenedTwice, "there was one of that id before", "an id that wasn't used in this run")
		}
		o.begin(s)
		o.chunk = &s
		said = append(said, piece(k, k.opener(), s.id, f))
	}
	if _, more := f["delta"]; more {
		said = append(said, piece(k, filler[k], o.chunk.id, f))
	}
	return said, nil
}

// filler is the event type that carries a delta.
var filler = map[kind]string{kindText: TypeTextContent, kindTool: TypeToolArgs, kindReasoningMessage: typeReasoningContent}

// piece makes one of the events that a chunk stands for, with what of its fields
// belongs there.
func piece(k kind, typ, id string, f fields) []byte {
	event := map[string]any{"type": typ, k.idField(): id}
	for _, want := range slices.Concat(shapes[typ], common) {
		if have, ok := f[want.name]; ok && want.name != k.idField() {
			event[want.name] = have
		}
	}
	if typ == typeReasoningStart {
		event["role"] = "reasoning"
	}
	return Encode(event)
}
