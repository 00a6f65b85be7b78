# Ruby libraries as peers: see redlock_peers_lab.py for the lines that it reads and writes.
#
# peer.rb HOST:PORT,... redlock-rb | antirez FILE
#
# PEER_CA, a file: with TLS. PEER_USER and PEER_PASSWORD: who logs in.
def options(address)
  ca = ENV['PEER_CA']
  option = { url: "#{ca ? 'rediss' : 'redis'}://#{address}", timeout: 30 }
  option[:ssl_params] = { ca_file: ca } if ca
  option.update(username: ENV['PEER_USER'], password: ENV['PEER_PASSWORD']) if ENV['PEER_USER']
  option
end

# leandromoreira/redlock-rb: 1.3 with the distribution's redis gem, 2.0 with redis-client.
class RedlockRb
  def initialize(addresses)
    require 'redlock'
    @client = Redlock::Client.new(addresses.map { |a| options(a) }, retry_count: 0)
  end

  def lock(key, ttl)
    info = @client.lock(key, ttl)
    @held = info if info
    info
  end

  def prolong(ttl)
    @client.lock(@held[:resource], ttl, extend: @held, extend_only_if_locked: true)
  end

  def unlock
    @client.unlock(@held)
  end
end

# antirez/redlock-rb, which takes addresses only, and calls what redis-rb 4 has renamed.
class Antirez
  def initialize(addresses, file)
    require 'redis'
    Redis.class_eval { alias_method(:client, :_client) }
    require file
    user = ENV['PEER_USER'] && "#{ENV['PEER_USER']}:#{ENV['PEER_PASSWORD']}@"
    @client = Redlock.new(*addresses.map { |a| "#{ENV['PEER_CA'] ? 'rediss' : 'redis'}://#{user}#{a}" })
    @client.set_retry(1, 1)
  end

  def lock(key, ttl)
    lock = @client.lock(key, ttl)
    @held = lock if lock
    lock
  end

  def unlock
    @client.unlock(@held)
  end
end

addresses = ARGV[0].split(',')
client = ARGV[1] == 'antirez' ? Antirez.new(addresses, ARGV[2]) : RedlockRb.new(addresses)
STDOUT.sync = true
STDIN.each_line do |line|
  words = line.split
  begin
    case words[0]
    when 'lock'
      puts(client.lock(words[1], words[2].to_i) ? 'held' : 'refused')
    when 'extend'
      puts(client.prolong(words[1].to_i) ? 'held' : 'lost')
    else
      client.unlock
      puts 'done' # it does not tell
    end
  rescue StandardError => e
    puts "error #{e.class} #{e.message.tr("\n", ' ')}"
  end
end
