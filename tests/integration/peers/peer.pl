# Redis::DistLock as a peer, with the distribution's Redis.pm: see redlock_peers_lab.py for the lines that it reads and writes.
#
# perl -I DIRECTORY/lib peer.pl HOST:PORT,...
#
# PEER_CA, a file: with TLS. PEER_USER and PEER_PASSWORD: who logs in.
use strict;
use warnings;
use Redis;
use Redis::DistLock;

$| = 1;
my %more = ( encoding => undef );
%more = ( %more, ssl => 1, SSL_verify_mode => 1, SSL_ca_file => $ENV{PEER_CA} ) if $ENV{PEER_CA};
%more = ( %more, username => $ENV{PEER_USER}, password => $ENV{PEER_PASSWORD} ) if $ENV{PEER_USER};
my ( $locks, $held );

sub answer {
    my @words = @_;
    $locks ||= Redis::DistLock->new(
        servers     => [ map { Redis->new( server => $_, %more ) } split( /,/, $ARGV[0] ) ],
        retry_count => 1, retry_delay => 0.001, logger => sub { },
    );
    if ( $words[0] eq 'lock' ) {
        my $lock = $locks->lock( $words[1], $words[2] / 1000 );
        $held = $lock if $lock;
        return $lock ? 'held' : 'refused';
    }
    if ( $words[0] eq 'extend' ) {
        return $locks->lock( $held->{resource}, $words[1] / 1000, $held->{value}, 1 ) ? 'held' : 'lost';
    }
    $locks->release($held);
    return 'done';    # it does not tell
}

while ( my $line = <STDIN> ) {
    my $said = eval { answer( split( ' ', $line ) ) };
    if ( !defined $said ) {
        $said = "error $@";
        $said =~ s/\s+/ /g;
    }
    print "$said\n";
}
