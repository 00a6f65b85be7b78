module fencelock-fences

go 1.25.0

require (
	github.com/aws/aws-sdk-go-v2 v1.47.7
	github.com/aws/aws-sdk-go-v2/service/s3 v1.114.8
	github.com/fencelock/fencelock/src/drivers/go v0.1.0
	github.com/fencelock/fencelock/src/drivers/go/pgxfence v0.1.0
	github.com/fencelock/fencelock/src/drivers/go/s3fence v0.1.0
	github.com/fencelock/fencelock/src/guards/s3/go v0.1.0
	github.com/jackc/pgx/v5 v5.13.0
)

require (
	github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream v1.7.26 // indirect
	github.com/aws/aws-sdk-go-v2/internal/configsources v1.5.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 v2.8.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/v4a v1.5.10 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/accept-encoding v1.13.24 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/checksum v1.11.11 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/presigned-url v1.14.10 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/s3shared v1.20.10 // indirect
	github.com/aws/smithy-go v1.28.8 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/redis/go-redis/v9 v9.7.3 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace (
	github.com/fencelock/fencelock/src/drivers/go => ../../../../src/drivers/go
	github.com/fencelock/fencelock/src/drivers/go/pgxfence => ../../../../src/drivers/go/pgxfence
	github.com/fencelock/fencelock/src/drivers/go/s3fence => ../../../../src/drivers/go/s3fence
	github.com/fencelock/fencelock/src/guards/s3/go => ../../../../src/guards/s3/go
)
