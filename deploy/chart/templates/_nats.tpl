{{- /*
What NATS' streams may take of a server's disk, in bytes: four fifths. The rest is for what
NATS doesn't count: the file system itself, Raft's logs, indexes, snapshots.
*/ -}}
{{- define "holdfast.nats.room" -}}
{{- $size := .Values.nats.storage.size -}}
{{- $unit := get (dict "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[A-Z]i$" $size) -}}
{{- div (mul (regexFind "^[0-9]+" $size) $unit 4) 5 -}}
{{- end -}}

{{- /*
Refuses a log that the disk has no room for: the installer's streams reserve what they
may take, EVENTS and BLOBS install.logMaxBytes each, OUTPUT 1 GiB, TRANSIT 512 MiB. One
without a limit is refused, too: nothing would say that the disk is nearly full.
*/ -}}
{{- define "holdfast.nats.fits" -}}
{{- $room := include "holdfast.nats.room" . | int64 -}}
{{- $log := int64 .Values.install.logMaxBytes -}}
{{- $beside := 1610612736 -}}
{{- $needed := add (mul 2 $log) $beside -}}
{{- $most := div (sub $room $beside) 2 -}}
{{- if lt $most 1 -}}
{{- fail (printf "nats.storage.size: of %s streams may take %d bytes (four fifths), and what there is beside the log alone takes %d: give it more" .Values.nats.storage.size $room $beside) -}}
{{- else if lt $log 1 -}}
{{- fail (printf "install.logMaxBytes: a log on the chart's own NATS has a limit, for without one nothing is refused before the disk is full; nats.storage.size %s has room for %d" .Values.nats.storage.size $most) -}}
{{- else if gt $needed $room -}}
{{- fail (printf "install.logMaxBytes: %d twice (EVENTS and BLOBS) and %d for what is beside them are %d bytes, and of nats.storage.size %s streams may take %d (four fifths): enlarge the disk, or set it to %d or less" $log $beside $needed .Values.nats.storage.size $room $most) -}}
{{- end -}}
{{- end -}}

{{- /*
Refuses another number of servers than there are disks of: a server that was alone and
joins a cluster removes its streams, the log among them, for the cluster knows none; and
streams keep the replicas that they were made with. What only renders sees no disks.
*/ -}}
{{- define "holdfast.nats.asMany" -}}
{{- $pattern := printf "^data-%s-nats-[0-9]+$" (include "holdfast.fullname" .) -}}
{{- $disks := 0 -}}
{{- range (lookup "v1" "PersistentVolumeClaim" .Release.Namespace "").items -}}
{{- if regexMatch $pattern .metadata.name }}{{ $disks = add1 $disks }}{{ end -}}
{{- end -}}
{{- if and $disks (ne (int $disks) (int .Values.nats.replicas)) -}}
{{- fail (printf "nats.replicas: there are the disks of %d and it can't be %d: a server that was alone and joins others removes its log, and streams keep the replicas that they were made with. Set it to %d; docs/operations.md says more" $disks (int .Values.nats.replicas) $disks) -}}
{{- end -}}
{{- end -}}
